#pragma once

#include "kernels/activation.h"
#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

// Weights are [taps + 1, channels] here, so that a vector of them is one of neighbouring channels;
// the last row is the bias, zeros where there is none.
struct ConvArgs {
  ConstRows x, dy;  // dy and dx in backward only
  Rows y, dx;
  const float* weight;
  // Of every token: how many tokens of its document lie before it, and how many after it.
  const int32_t* before;
  const int32_t* after;
  int64_t tokens, channels, taps;
  bool silu;
};

struct ConvTable {
  void (*forward)(const ConvArgs&, const Box&);
  // d_weight [taps + 1, channels]: the row block's own, overwritten in the box's columns; the last
  // row is the bias's. scratch: (rows of the box + taps - 1) * (columns of the box) floats.
  void (*backward)(const ConvArgs&, const Box&, float* d_weight, float* scratch);
};
const ConvTable& conv_table(IsaTag<Isa::kPlain>);
const ConvTable& conv_table(IsaTag<Isa::kAvx2>);
const ConvTable& conv_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
