#pragma once

#include "kernels/routing/expert_order.h"

// The CPU's side of kernels/routing/expert_order.h: arguments are checked.
namespace weft::kernels::cpu {

void count_pairs(Exec& exec, ConstView index, View count);
void order_pairs(Exec& exec, ConstView index, const HostTable<int64_t>& offsets, View token,
                 View row);
void keep_pairs(Exec& exec, const KeepPairs& call);
void permute_pairs(Exec& exec, ConstView row, ConstView values, View sorted);
void unpermute_pairs(Exec& exec, ConstView row, ConstView sorted, View values);
void combine_rows(Exec& exec, ConstView row, ConstView rows, View y, Write write);

}  // namespace weft::kernels::cpu
