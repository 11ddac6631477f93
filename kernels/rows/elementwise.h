#pragma once

#include "core/memory/exec.h"

// Copies and sums. Types f32 and bf16 mix freely unless said otherwise; rows may be strided.
namespace weft::kernels {

void copy(Exec& exec, ConstView x, View y);                 // y = x, converting
void add(Exec& exec, ConstView a, ConstView b, View y);     // y = a + b; y may be a or b
void scale(Exec& exec, ConstView x, float factor, View y);  // y = factor * x; y may be x
// y = factor * (offset + x), the scale of a norm whose weight is stored as a difference
void shift_scale(Exec& exec, ConstView x, float offset, float factor, View y);
void fill(Exec& exec, View y, float value);
void add_bias(Exec& exec, ConstView bias, View y);  // y [n, d] += bias [d] (f32)

}  // namespace weft::kernels
