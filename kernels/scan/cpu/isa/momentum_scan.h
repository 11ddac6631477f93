#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// M, S and the anchor, f32 [key, value]. Entering: an empty one is zero (the anchor: as m);
// leaving: not wanted.
struct MomentumStatesIn {
  tile::In m, s, anchor;
};
struct MomentumStatesTo {
  tile::Out m, s, anchor;
};

// One head of one document.
struct MomentumTask {
  tile::In q, k, v;
  tile::InVector theta, alpha, eta;  // empty: 0
  int64_t before = 0, mini_batch = 1;
  float scale = 1.0f;
  MomentumStatesIn entering;
};
struct MomentumOutputs {
  tile::Out out;  // empty: only states are wanted, q is not read and nothing kept
  MomentumStatesTo leaving;
  float* kept;  // null: nothing is kept
};
struct MomentumGradients {
  tile::In d_out;
  MomentumStatesIn d_leaving;
  tile::Out dq, dk, dv;
  tile::OutVector d_theta, d_alpha, d_eta;
  MomentumStatesTo entering;
  const float* kept;
};

// Sizes are counted in floats; scratch is aligned to 64 bytes and belongs to the caller's thread.
struct MomentumTable {
  int64_t (*kept)(const MomentumTask& task);
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const MomentumTask& task, const MomentumOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t key, int64_t value);
  void (*backward)(const MomentumTask& task, const MomentumGradients& gradients, float* scratch);
};
const MomentumTable& table(IsaTag<Isa::kPlain>, const MomentumTable*);
const MomentumTable& table(IsaTag<Isa::kAvx2>, const MomentumTable*);
const MomentumTable& table(IsaTag<Isa::kAvx512>, const MomentumTable*);

}  // namespace weft::kernels
