#pragma once

#include "core/memory/exec.h"

// Rows of several matrices side by side, as they travel between ranks: packed i32 [rows, words]. A
// matrix has a fixed place in every packed row, `first_byte`; its rows are picked by an index i32
// [packed rows]. Matrices f32 or bf16, [rows, width], contiguous.
namespace weft::kernels {

// packed[r] = from[index[r]], in this matrix's place
void pack_rows(Exec& exec, ConstView from, ConstView index, int64_t first_byte, View packed);
// to[index[r]] = packed[r]
void unpack_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to);
// to[index[r]] += packed[r], f32; no row of `to` is picked twice
void add_packed_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to);

}  // namespace weft::kernels
