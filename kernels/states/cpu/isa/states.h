#pragma once

#include "kernels/cpu/by_isa.h"

namespace weft::kernels {

struct ScaledRows {
  const float* factors;  // one per row
  const float* from;
  float* to;
  int64_t width;
};

struct ScaledSides {
  const float *rows, *columns;  // logarithms: one per row, and `width` per matrix
  const float* from;
  float* to;
  int64_t height, width;  // of a matrix
};

struct Transposed {
  const float* from;  // [rows, columns]
  float* to;
  int64_t rows, columns;
};

// Rows [begin, end), counted over all matrices.
struct StatesTable {
  void (*scale_rows)(const ScaledRows&, int64_t begin, int64_t end);
  void (*scale_sides)(const ScaledSides&, int64_t begin, int64_t end);
  void (*transpose)(const Transposed&);
};
const StatesTable& table(IsaTag<Isa::kPlain>, const StatesTable*);
const StatesTable& table(IsaTag<Isa::kAvx2>, const StatesTable*);
const StatesTable& table(IsaTag<Isa::kAvx512>, const StatesTable*);

}  // namespace weft::kernels
