#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// One head of one document. States are f32 [key, value]; an empty one is zero, or not wanted.
struct RankOneTask {
  tile::In q, k, v;
  tile::In log_decay;       // f32 [tokens, key]
  tile::In alpha, beta;     // [tokens, key], or empty: the delta rule
  tile::InVector strength;  // its beta
  float scale = 1.0f;
  tile::In initial_state;
};
struct RankOneOutputs {
  tile::Out out;  // empty: only states are wanted, q is not read and nothing kept
  tile::Out final_state;
  float* kept;  // null: nothing is kept
};
struct RankOneGradients {
  tile::In d_out, d_final_state;
  tile::Out dq, dk, dv, d_log_decay;
  tile::Out d_alpha, d_beta;
  tile::OutVector d_strength;
  tile::Out d_initial_state;
  const float* kept = nullptr;
};

// Sizes are counted in floats; scratch is aligned to 64 bytes and belongs to the caller's thread.
// There is a table for each form of the recurrence.
struct RankOneTable {
  int64_t (*kept)(int64_t tokens, int64_t key, int64_t value);
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const RankOneTask& task, const RankOneOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t key, int64_t value);
  void (*backward)(const RankOneTask& task, const RankOneGradients& gradients, float* scratch);
};
struct RankOneTables {
  RankOneTable general, delta;
};
const RankOneTables& table(IsaTag<Isa::kPlain>, const RankOneTables*);
const RankOneTables& table(IsaTag<Isa::kAvx2>, const RankOneTables*);
const RankOneTables& table(IsaTag<Isa::kAvx512>, const RankOneTables*);
const RankOneTables& table(IsaTag<Isa::kAvx512Bf16>, const RankOneTables*);
const RankOneTables& table(IsaTag<Isa::kAmx>, const RankOneTables*);

}  // namespace weft::kernels
