#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// HGRN2's lower bounds of forget gates, which grow with depth. One tensor for the whole model, raw
// f32 [layers, width]; with p its softmax over layers, layer l has  p_1 + ... + p_l  (none in layer
// 0).
void lower_bound_forward(Exec& exec, int64_t layer, ConstView raw, View bound);
// d_raw += ...
void lower_bound_backward(Exec& exec, int64_t layer, ConstView raw, ConstView d_bound, View d_raw);
// From gradients of the bounds, row by row those of each layer, to that of raw, in their place.
// Layer by layer, so that the sum does not depend on which ranks held which layers.
void lower_bounds_backward(Exec& exec, ConstView raw, View gradient);

}  // namespace weft::kernels
