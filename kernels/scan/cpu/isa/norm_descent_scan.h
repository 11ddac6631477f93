#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// Weights of the inner model: m [width, width], n [width], f32.
struct NormDescentState {
  tile::In m;
  tile::InVector n;
};
struct NormDescentStateOut {
  tile::Out m;
  tile::OutVector n;
};

// One head of one document. Empty states are zero (the anchor: as the state), or not wanted.
struct NormDescentTask {
  tile::In q, k, v;
  tile::InVector eta, w, c;
  int64_t before = 0, mini_batch = 1;
  float scale = 1.0f, epsilon = 0.0f;
  NormDescentState state, anchor;
};
struct NormDescentOutputs {
  tile::Out out;
  NormDescentStateOut state, anchor;
  float* kept;  // null: nothing is kept
};
struct NormDescentTaskGradients {
  tile::In d_out;
  NormDescentState d_state, d_anchor;  // of what leaves
  tile::Out dq, dk, dv;
  tile::OutVector d_eta;
  tile::OutVector d_w, d_c;  // overwritten: the sums of this task
  NormDescentStateOut state, anchor;
  const float* kept;
};

// Sizes are counted in floats; scratch is aligned to 64 bytes and belongs to the caller's thread.
struct NormDescentTable {
  int64_t (*kept)(int64_t tokens, int64_t mini_batch, int64_t width);
  int64_t (*forward_scratch)(int64_t width);
  void (*forward)(const NormDescentTask& task, const NormDescentOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t mini_batch, int64_t width);
  void (*backward)(const NormDescentTask& task, const NormDescentTaskGradients& gradients,
                   float* scratch);
};
const NormDescentTable& table(IsaTag<Isa::kPlain>, const NormDescentTable*);
const NormDescentTable& table(IsaTag<Isa::kAvx2>, const NormDescentTable*);
const NormDescentTable& table(IsaTag<Isa::kAvx512>, const NormDescentTable*);

}  // namespace weft::kernels
