#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// One head of one run of tokens that starts from its own state. States are f32 [key, value]; an
// empty one is zero, or not wanted.
struct ScanTask {
  tile::In q, k, v;
  tile::InVector log_decay;
  float scale = 1.0f;
  tile::In initial_state;
};
struct ScanOutputs {
  tile::Out out;
  tile::Out final_state;
  float* kept = nullptr;  // the states between chunks, or not wanted
};
struct ScanGradients {
  tile::In d_out, d_final_state;
  tile::Out dq, dk, dv;
  tile::OutVector d_log_decay;
  tile::Out d_initial_state;
  const float* kept = nullptr;  // as forward left it; null: recomputed
};

// Scratch is counted in floats, aligned to 64 bytes, and belongs to the caller's thread.
struct ScanTable {
  int64_t (*kept)(int64_t tokens, int64_t key, int64_t value);  // floats
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const ScanTask& task, const ScanOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t key, int64_t value);
  void (*backward)(const ScanTask& task, const ScanGradients& gradients, float* scratch);
  // The effect of the tokens on a state, M -> e^total M + state, and backward on its gradient,
  // dM -> e^total dM + d_state. Return `total`; the scratch of forward is enough.
  float (*summarize)(const ScanTask& task, const tile::Out& state, float* scratch);
  float (*summarize_back)(const ScanTask& task, const tile::In& d_out, const tile::Out& d_state,
                          float* scratch);
};
const ScanTable& table(IsaTag<Isa::kPlain>, const ScanTable*);
const ScanTable& table(IsaTag<Isa::kAvx2>, const ScanTable*);
const ScanTable& table(IsaTag<Isa::kAvx512>, const ScanTable*);
const ScanTable& table(IsaTag<Isa::kAvx512Bf16>, const ScanTable*);
const ScanTable& table(IsaTag<Isa::kAmx>, const ScanTable*);

}  // namespace weft::kernels
