#pragma once

#include "core/memory/exec.h"

// From a projection to log decays g <= 0 and back. Computed in f32; g is always f32, the others f32
// or bf16. All matrices are [n, d], rows may be strided.
namespace weft::kernels {

// kLogSigmoid: g = max(logsigmoid(z) / divisor, floor)       (no gradient where the floor holds)
// kMinusExp:   g = -e^z
struct DecayGate {
  enum class Kind : uint8_t { kLogSigmoid, kMinusExp } kind = Kind::kLogSigmoid;
  float divisor = 1.0f;
  float floor = -3.0e38f;
};
void decay_gate_forward(Exec& exec, const DecayGate& gate, ConstView z, View g);
// dz = dg * slope at z; dz may be the same bytes as dg.
void decay_gate_backward(Exec& exec, const DecayGate& gate, ConstView z, ConstView dg, View dz);

// A forget gate a = lower + (1 - lower) sigmoid(f) and the input gate that complements it:
//   g = log a,    k = 1 - a
// lower: f32 [d], of which numbers outside of [0, 0.999] count as the nearer end; not given (data
// == nullptr): 0.
void tied_gates_forward(Exec& exec, ConstView f, ConstView lower, View g, View k);
// df = ...;  d_lower [d] f32 += ... (not given when lower is not). df may be the same bytes as dk.
struct TiedGatesBackward {
  ConstView f, lower, dg, dk;
  View df, d_lower;
};
void tied_gates_backward(Exec& exec, const TiedGatesBackward& in);

}  // namespace weft::kernels
