#pragma once

#include "kernels/states/packed_rows.h"

// The CPU's side of kernels/states/packed_rows.h: arguments are checked.
namespace weft::kernels::cpu {

void pack_rows(Exec& exec, ConstView from, ConstView index, int64_t first_byte, View packed);
void unpack_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to);
void add_packed_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to);

}  // namespace weft::kernels::cpu
