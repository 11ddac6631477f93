#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct Elementwise {
  ConstRows a, b;
  Rows y;
  float factor;
};

struct ElementwiseTable {
  void (*copy)(const Elementwise&, const Box&);
  void (*add)(const Elementwise&, const Box&);
  void (*scale)(const Elementwise&, const Box&);
  void (*fill)(const Elementwise&, const Box&);
  void (*add_bias)(const float* bias, const Rows& y, const Box&);
  // sum[c] += the box's rows of column c, in order; sum starts at column 0 of the matrix.
  void (*add_rows)(const ConstRows& x, const Box&, float* sum);
  double (*sum_of_squares)(const ConstRows& x, const Box&);
  bool (*all_finite)(const ConstRows& x, const Box&);
};
const ElementwiseTable& table(IsaTag<Isa::kPlain>, const ElementwiseTable*);
const ElementwiseTable& table(IsaTag<Isa::kAvx2>, const ElementwiseTable*);
const ElementwiseTable& table(IsaTag<Isa::kAvx512>, const ElementwiseTable*);

}  // namespace weft::kernels
