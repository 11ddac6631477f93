#pragma once

#include "kernels/model/cross_entropy.h"

// The CPU's side of kernels/model/cross_entropy.h: arguments are checked.
namespace weft::kernels::cpu {

// Targets that the vocabulary lacks are refused.
void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits);
void cross_entropy_parts(Exec& exec, ConstView logits, ConstView targets,
                         const VocabularySlice& slice, View parts);
void cross_entropy_slice(Exec& exec, const SlicedCrossEntropy& call, const VocabularySlice& slice);

}  // namespace weft::kernels::cpu
