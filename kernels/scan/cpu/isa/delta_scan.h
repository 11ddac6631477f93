#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// One head of one document. States are f32 [key, value]; an empty one is zero, or not wanted.
struct DeltaTask {
  tile::In q, k, v;
  tile::InVector beta, log_decay;
  float scale = 1.0f;
  tile::In initial_state;
};
struct DeltaOutputs {
  tile::Out out;  // empty: only states are wanted, q is not read and nothing kept
  tile::Out final_state;
  float* kept;  // null: nothing is kept
};
struct DeltaGradients {
  tile::In d_out, d_final_state;
  tile::Out dq, dk, dv;
  tile::OutVector d_beta, d_log_decay;
  tile::Out d_initial_state;
  const float* kept;
};

// Sizes are counted in floats; scratch is aligned to 64 bytes and belongs to the caller's thread.
struct DeltaTable {
  int64_t (*kept)(int64_t tokens, int64_t key, int64_t value);
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const DeltaTask& task, const DeltaOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t key, int64_t value);
  void (*backward)(const DeltaTask& task, const DeltaGradients& gradients, float* scratch);
};
const DeltaTable& table(IsaTag<Isa::kPlain>, const DeltaTable*);
const DeltaTable& table(IsaTag<Isa::kAvx2>, const DeltaTable*);
const DeltaTable& table(IsaTag<Isa::kAvx512>, const DeltaTable*);
const DeltaTable& table(IsaTag<Isa::kAvx512Bf16>, const DeltaTable*);
const DeltaTable& table(IsaTag<Isa::kAmx>, const DeltaTable*);

}  // namespace weft::kernels
