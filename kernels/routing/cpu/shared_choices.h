#pragma once

#include "kernels/routing/shared_choices.h"

// The CPU's side of kernels/routing/shared_choices.h: arguments are checked.
namespace weft::kernels::cpu {

void pack_choices(Exec& exec, ConstView index, ConstView weight, const TokenSequences& sequences,
                  View words);
void unpack_choices(Exec& exec, ConstView words, View index, View weight, View place);
void keep_choices(Exec& exec, ConstView row, ConstView place, int64_t first, ConstView index,
                  View kept);

}  // namespace weft::kernels::cpu
