#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

inline constexpr int64_t kMomentumChunk = 64;

// One head of one document: rows begin at its first token and channel. States are f32 [key, value];
// null: zero (anchor: as m), or not wanted.
struct MomentumTask {
  ConstRows q, k, v;
  ConstRows theta, alpha, eta;  // one column; no data: 0
  int64_t tokens, before, key, value, mini_batch;
  float scale;
  const float *m, *s, *anchor;
};
struct MomentumOutputs {
  Rows out;
  float *m, *s, *anchor;
};
struct MomentumGradients {
  ConstRows d_out;
  const float *d_m, *d_s, *d_anchor;  // of the leaving states
  Rows dq, dk, dv;
  Rows d_theta, d_alpha, d_eta;
  float *m, *s, *anchor;
};

// Scratch is counted in floats and belongs to the caller's thread.
struct MomentumTable {
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const MomentumTask& task, const MomentumOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t key, int64_t value);
  void (*backward)(const MomentumTask& task, const MomentumGradients& gradients, float* scratch);
};
const MomentumTable& momentum_table(IsaTag<Isa::kPlain>);
const MomentumTable& momentum_table(IsaTag<Isa::kAvx2>);
const MomentumTable& momentum_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
