#pragma once

#include "core/memory/host_table.h"

namespace weft::kernels {

// Rotary position embedding, rotate-half form, over the first `rotary_width` channels of each head:
// (x_i, x_{i+w/2}) -> (x_i c - x_{i+w/2} s, x_{i+w/2} c + x_i s),  angle = position * frequency_i,
// which is base^(-2i/w) unless given; c and s are cosine and sine times `scale`.
struct Rope {
  int64_t heads = 1;
  int64_t head_width = 0;
  int64_t rotary_width = 0;  // even, at most head_width
  double base = 10000.0;
  enum class Direction : uint8_t { kForward, kBackward } direction = Direction::kForward;
  HostTable<double> frequencies = {};  // of the rotary_width / 2 pairs; empty: by the base
  double scale = 1.0;
};

// x [tokens, heads * head_width] in place (rows may be strided); positions [tokens] i32, counted
// from each document's start. kBackward is the transpose: it turns gradients back.
void rope(Exec& exec, const Rope& rope, ConstView positions, View x);

}  // namespace weft::kernels
