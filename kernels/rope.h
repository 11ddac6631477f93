#pragma once

#include "core/exec.h"

namespace weft::kernels {

// Rotary position embedding, rotate-half form, over the first `rotary_width` channels of each head:
// (x_i, x_{i+w/2}) -> (x_i c - x_{i+w/2} s, x_{i+w/2} c + x_i s),  angle = position * base^(-2i/w).
struct Rope {
  int64_t heads = 1;
  int64_t head_width = 0;
  int64_t rotary_width = 0;  // even, at most head_width
  double base = 10000.0;
  enum class Direction : uint8_t { kForward, kBackward } direction = Direction::kForward;
};

// x [tokens, heads * head_width] in place (rows may be strided); positions [tokens] i32, counted
// from each document's start. kBackward is the transpose: it turns gradients back.
void rope(Exec& exec, const Rope& rope, ConstView positions, View x);

}  // namespace weft::kernels
