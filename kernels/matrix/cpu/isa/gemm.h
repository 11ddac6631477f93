#pragma once

#include <cstdint>

#include "kernels/cpu/by_isa.h"

// Between the driver of matrix products and the code of each instruction set.
//
// An operand has lines (rows of the left one, columns of the right one) and k. Both are rearranged
// into panels: `mr` or `nr` lines side by side for every k, missing lines filled with zeros. A
// product is cut into tiles, each done by one thread; every element of c is one chain of
// multiply-adds over k, broken into blocks of `k_block` at fixed places, so its bits do not depend
// on how the matrix is cut.
namespace weft::kernels {

struct GemmOperand {
  const void* data = nullptr;
  int64_t stride = 0;               // elements from one stored row to the next
  const int32_t* gather = nullptr;  // stored row r is row gather[r] of data
  bool along_k = false;             // a stored row is a line; else it holds one k of all lines
};

struct GemmPack {
  GemmOperand source;
  int64_t first_line = 0, lines = 0;
  int64_t first_k = 0, k = 0;
  void* panels = nullptr;  // of first_line, at first_k; lines beyond the last are written as zeros
  int64_t panel_stride = 0;  // elements from one panel to the next
};

struct GemmTile {
  GemmOperand a, b;
  int64_t first_row = 0, rows = 0;
  int64_t first_column = 0, columns = 0;
  int64_t k = 0;
  const void* panels = nullptr;  // b's, of first_column; null: packed on the way
  int64_t panel_stride = 0;
  void* c = nullptr;  // of first_row and first_column
  int64_t c_stride = 0;
  bool c_bf16 = false;
  bool accumulate = false;
  void* scratch = nullptr;  // scratch_bytes(rows, columns)
};

// Products of one element type on one instruction set.
struct GemmKernels {
  int64_t mr, nr;
  int64_t k_step;        // panels hold k rounded up to this
  int64_t packed_bytes;  // of one element in a panel
  int64_t max_rows;      // of a tile
  void (*pack_b)(const GemmPack& pack);
  void (*tile)(const GemmTile& tile);
  int64_t (*scratch_bytes)(int64_t rows, int64_t columns);
  double (*peak_loop)(int64_t steps);  // multiplies in registers only; returns the operations done
};

struct GemmTable {
  GemmKernels f32, bf16;
};
const GemmTable& table(IsaTag<Isa::kPlain>, const GemmTable*);
const GemmTable& table(IsaTag<Isa::kAvx2>, const GemmTable*);
const GemmTable& table(IsaTag<Isa::kAvx512>, const GemmTable*);
const GemmTable& table(IsaTag<Isa::kAvx512Bf16>, const GemmTable*);
const GemmTable& table(IsaTag<Isa::kAmx>, const GemmTable*);

}  // namespace weft::kernels
