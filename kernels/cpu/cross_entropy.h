#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

struct CrossEntropy {
  ConstRows logits;  // f32
  const int32_t* targets;
  float* losses;
  Rows d_logits;  // may be absent
  int64_t width;
  float grad_scale;
};

struct CrossEntropyTable {
  void (*rows)(const CrossEntropy&, int64_t begin, int64_t end);
};
const CrossEntropyTable& cross_entropy_table(IsaTag<Isa::kPlain>);
const CrossEntropyTable& cross_entropy_table(IsaTag<Isa::kAvx2>);
const CrossEntropyTable& cross_entropy_table(IsaTag<Isa::kAvx512>);
const CrossEntropyTable& cross_entropy_table(IsaTag<Isa::kAmx>);

}  // namespace weft::kernels
