#pragma once

#include "core/memory/exec.h"
#include "kernels/model/vocabulary.h"

namespace weft::kernels {

// y [n, d] = table [vocab, d] at tokens [n] (i32); 0 where the entry is not in the slice
void embedding_forward(Exec& exec, ConstView tokens, ConstView table, View y,
                       const VocabularySlice& slice = {});
// d_table [vocab, d] (f32) += rows of dy, in token order for each entry (same bits for any threads)
void embedding_backward(Exec& exec, ConstView tokens, ConstView dy, View d_table,
                        const VocabularySlice& slice = {});

}  // namespace weft::kernels
