#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// Means over bins of the channels of a head, for heads that share a source in groups:
//   z [tokens, heads * bins] f32:  bin i of head h = factor * mean of channels
//   floor(i width / bins) ... ceil((i + 1) width / bins) - 1  of source head h / (heads / sources)
// x [tokens, sources * width] f32 or bf16; rows may be strided. (Bins overlap where they do not
// divide the width.)
struct HeadPool {
  int64_t heads = 1, sources = 1, bins = 1;
  float factor = 1.0f;
};
void head_pool_forward(Exec& exec, const HeadPool& pool, ConstView x, View z);
// dx += ...
void head_pool_backward(Exec& exec, const HeadPool& pool, ConstView dz, View dx);

}  // namespace weft::kernels
