#pragma once

#include <span>

#include "core/memory/exec.h"

// Decay of recurrent states and the sums that it is made of. States are f32, contiguous, [n, heads,
// ...] with n documents (or chains of documents); results are overwritten.
namespace weft::kernels {

// How much of a state is left, as a logarithm f: one number for each of the leading dimensions of
// the state ([n, heads]: per head; [n, heads, dk]: per row; all of them: per entry). Where decays
// are weights, f = t w: weights w without n, times t [n] or [n, the last of w's dimensions].
struct StateDecay {
  ConstView logs;          // f, or t where there are weights
  ConstView weights = {};  // w
};
// out = e^f state
void decay_state(Exec& exec, const StateDecay& decay, ConstView state, View out);

// out[i, j] = e^{r_i + c_j} state[i, j]; r [n, heads, rows], c [n, heads, columns]
void decay_state_sides(Exec& exec, ConstView rows, ConstView columns, ConstView state, View out);

// Sums over the tokens of each document of x f32 [tokens, kv_heads * width], for every head: sums
// [documents, heads, width]. documents: offsets of tokens, n + 1 entries.
struct DocumentSums {
  int64_t heads = 1, kv_heads = 1, width = 0;
};
void document_sums(Exec& exec, const DocumentSums& shape, std::span<const int32_t> documents,
                   ConstView x, View sums);

// Log decays of Mamba's states: logs [states, channels] = -e^{rates [channels, states]}, times
// e^{log_dt [channels]} where given.
void log_rates(Exec& exec, ConstView rates, ConstView log_dt, View logs);

}  // namespace weft::kernels
