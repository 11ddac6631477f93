#pragma once

#include "core/exec.h"

namespace weft::kernels {

// Rows of logits [n, vocab] (f32), targets [n] (i32; negative: the row does not count).
// losses [n] f32 = logsumexp - logit of the target (0 where it does not count).
// d_logits [n, vocab] = (softmax - onehot) * grad_scale, f32 (may be the same bytes as logits) or
// bf16; empty when no gradient is wanted. The caller feeds row blocks, so that no [tokens, vocab]
// f32 tensor ever exists.
void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits);

}  // namespace weft::kernels
