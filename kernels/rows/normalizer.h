#pragma once

#include "core/memory/exec.h"

// Linear attention divided by the sum of its weights. Numerator and denominator come out of one
// scan when every value gets one more channel that is 1:  v' = (v | 1)  ->  o' = (numerator |
// denominator).
namespace weft::kernels {

inline constexpr float kNormalizerEpsilon = 1e-10f;

// wide [tokens, heads * (width + 1)] = each head of x [tokens, heads * width] followed by a 1
void append_ones(Exec& exec, int64_t heads, ConstView x, View wide);
// x [tokens, heads * width] = the first `width` channels of each head of wide: backward of
// append_ones
void drop_last_channel(Exec& exec, int64_t heads, ConstView wide, View x);

// out [tokens, heads * width] = numerator / (denominator + epsilon), from wide (f32)
void divide_by_last_channel(Exec& exec, int64_t heads, ConstView wide, View out,
                            float epsilon = kNormalizerEpsilon);
// d_wide (f32), from wide and d_out
void divide_by_last_channel_backward(Exec& exec, int64_t heads, ConstView wide, ConstView d_out,
                                     View d_wide, float epsilon = kNormalizerEpsilon);

}  // namespace weft::kernels
