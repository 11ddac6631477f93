#pragma once

#include "core/memory/exec.h"

// States of some sequences (documents, chains of documents) from those of others. f32, contiguous;
// the first dimension counts sequences.
namespace weft::kernels {

// to[i] = from[index[i]], or otherwise[i] where index[i] < 0 (zero where there is no `otherwise`).
// index i32 [sequences of `to`]
void pick_states(Exec& exec, ConstView from, ConstView index, ConstView otherwise, View to);

// to[i] = state[i] where passes[i] is not 0, else otherwise[i] (zero where there is none); passes
// f32 [sequences]
void pass_states(Exec& exec, ConstView passes, ConstView state, ConstView otherwise, View to);

}  // namespace weft::kernels
