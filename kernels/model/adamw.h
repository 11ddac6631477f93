#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// AdamW, one pass over memory: unscale and clip, moments, update, copy in compute precision.
struct AdamW {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // decoupled: w -= lr * weight_decay * w
  double grad_scale = 1.0;    // clip factor over loss scale
  int64_t step = 1;           // counts from 1
};

// master, m, v: f32 [n], updated; grad: f32 [n]; value: bf16 [n] written from the new master, or
// empty.
void adamw(Exec& exec, const AdamW& options, View master, ConstView grad, View m, View v,
           View value);

}  // namespace weft::kernels
