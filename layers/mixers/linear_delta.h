#pragma once

#include "layers/mixers/linear_mixer.h"

namespace weft {

struct DeltaOptions {
  HeadOptions heads;        // of q and k
  int64_t value_heads = 0;  // of v, the gates and the state, on this rank
  bool short_conv = true;
  bool negative_eigenvalues = false;
  bool output_gate = false;
};

// Write strengths of delta rules, the first gate of their recurrence. With negative eigenvalues a
// write may turn a value around: factor 2.
GateSpec write_strength(bool negative_eigenvalues, size_t slot = 0);

// The delta rule on keys of length one. A decay may be added as the second gate.
LinearRule delta_rule(DType compute, const HeadOptions& heads, int64_t value_heads,
                      bool negative_eigenvalues);

// Mixers of the delta rule: q, k, v = silu(short convolutions(projections)), q and k of length one,
// b = factor * sigmoid(b_proj x).
LinearSpec delta_spec(const MixerBuild& build, const DeltaOptions& o);

}  // namespace weft
