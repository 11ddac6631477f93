#pragma once

#include <span>

#include "core/memory/exec.h"

// Complex states as real ones: f32, contiguous, [n, heads, 2, dk, dv], real parts before imaginary
// ones ([n, heads, 2 dk, dv] is the same layout). Factors f: [n, heads, 2, dk], one complex number
// for every row. Results are overwritten.
namespace weft::kernels {

enum class Turn : uint8_t {
  kForward,    // out = f state
  kBack,       // out = conjugate(f) state, the transpose of kForward
  kConjugate,  // out = f conjugate(state), which is its own transpose
};
void turn_state(Exec& exec, ConstView factors, Turn turn, ConstView state, View out);

// out = conjugate(state), of any layout with as many numbers
void conjugate_state(Exec& exec, ConstView state, View out);

// turns [documents, heads, 2, dk] = e^{g + i p}: p the phase f32 [tokens, heads * dk] of each
// document's last token, 0 for a document without tokens; g f32 [documents, heads, dk], 0 where not
// given. documents: offsets of tokens, n + 1 entries.
void last_turns(Exec& exec, std::span<const int32_t> documents, ConstView phase, ConstView g,
                View turns);

// The gradient of the angle of every row: d_angle [n, heads, dk] = sum over dv of d_im re - d_re im
void turn_gradient(Exec& exec, ConstView state, ConstView d_state, View d_angle);

}  // namespace weft::kernels
