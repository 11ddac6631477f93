#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"
#include "kernels/ffn_activation.h"

namespace weft::kernels {

// Activations without a gate: pre and h have the same width.
struct PlainHidden {
  FfnActivation a;
  ConstRows pre, dh;   // dh, d_pre and d_scale in backward only
  const float* scale;  // absent: 1
  Rows h;              // absent in backward where it is not wanted
  Rows d_pre;
  float* d_scale;  // may be absent
  int64_t width;
};

struct FfnActivationTable {
  void (*forward)(const PlainHidden&, int64_t begin, int64_t end);
  void (*backward)(const PlainHidden&, int64_t begin, int64_t end);
};
const FfnActivationTable& ffn_activation_table(IsaTag<Isa::kPlain>);
const FfnActivationTable& ffn_activation_table(IsaTag<Isa::kAvx2>);
const FfnActivationTable& ffn_activation_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
