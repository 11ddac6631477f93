#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/rows/elementwise_rows.h"

namespace weft::kernels {

struct ElementwiseTable {
  void (*copy)(const Elementwise&, const Box&);
  void (*add)(const Elementwise&, const Box&);
  void (*scale)(const Elementwise&, const Box&);
  void (*shift_scale)(const Elementwise&, const Box&);
  void (*fill)(const Elementwise&, const Box&);
  void (*add_bias)(const AddBias&, const Box&);
};
const ElementwiseTable& table(IsaTag<Isa::kPlain>, const ElementwiseTable*);
const ElementwiseTable& table(IsaTag<Isa::kAvx2>, const ElementwiseTable*);
const ElementwiseTable& table(IsaTag<Isa::kAvx512>, const ElementwiseTable*);

}  // namespace weft::kernels
