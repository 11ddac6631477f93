#pragma once

#include "layers/mixers/linear_mixer.h"

namespace weft {

// Mixers whose state is a linear model, trained on the tokens as they come by descent with rates
// sigmoid(projection of x + bias), on keys of length one. Descent feeds what it reads back into
// what it writes, so its keys are not rounded once more, and most of the gradients of q and k
// cancels along them: these are f32.
GateSpec descent_gate(const char* stem, size_t slot, double start);

// Gates: a rate. Without momentum and with mini-batches of one token descent is the delta rule,
// which has the faster kernel.
CoreMaker descent_core(DType compute, const HeadOptions& heads, int64_t mini_batch);
// Gates: rate, forgetting, momentum.
CoreMaker momentum_core(const HeadOptions& heads, int64_t mini_batch);
// Gates: a rate. The inner model is k + LayerNorm(k M + n): descent on it, and the read through the
// same norm, o = q + LayerNorm(q M + n). The norm's weight and bias and where M and n start are
// weights of the core. dk and dv are equal.
CoreMaker inner_norm_core(const HeadOptions& heads, int64_t mini_batch);

}  // namespace weft
