#pragma once

#include "core/memory/exec.h"
#include "kernels/model/vocabulary.h"

namespace weft::kernels {

// Rows of logits [n, vocab] (f32), targets [n] (i32; negative: the row does not count).
// losses [n] f32 = logsumexp - logit of the target (0 where it does not count).
// d_logits [n, vocab] = (softmax - onehot) * grad_scale, f32 (may be the same bytes as logits) or
// bf16; empty when no gradient is wanted. The caller feeds row blocks, so that no [tokens, vocab]
// f32 tensor ever exists.
void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits);

// Where ranks hold slices of the vocabulary: two steps around one gather.
// parts [n, 3] f32: of the slice's logits the largest and the sum of e^(logit - largest), and the
// target's logit if it is in the slice, else 0.
void cross_entropy_parts(Exec& exec, ConstView logits, ConstView targets,
                         const VocabularySlice& slice, View parts);
// all [ranks, n, 3]: the parts of every slice. Losses are those of the whole vocabulary, the same
// on every rank; d_logits those of the slice.
struct SlicedCrossEntropy {
  ConstView logits, targets, all;
  float grad_scale;
  View losses;
  View d_logits = {};
};
void cross_entropy_slice(Exec& exec, const SlicedCrossEntropy& call, const VocabularySlice& slice);

}  // namespace weft::kernels
