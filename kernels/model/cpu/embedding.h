#pragma once

#include "kernels/model/embedding.h"

// The CPU's side of kernels/model/embedding.h: arguments are checked.
namespace weft::kernels::cpu {

// Tokens that the vocabulary lacks are refused.
void embedding_forward(Exec& exec, ConstView tokens, ConstView table, View y,
                       const VocabularySlice& slice);
void embedding_backward(Exec& exec, ConstView tokens, ConstView dy, View d_table,
                        const VocabularySlice& slice);

}  // namespace weft::kernels::cpu
