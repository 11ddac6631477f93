#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// One head of one document. States are f32 [key, value]; an empty one is zero, or not wanted.
struct DiagonalTask {
  tile::In q, k, v;
  tile::In log_decay;    // f32 [tokens, key]
  tile::InVector bonus;  // [key], or empty
  float scale = 1.0f;
  tile::In initial_state;
  tile::In value_log_decay = {};  // f32 [tokens, value], or empty; then log_decay may be empty
};
struct DiagonalOutputs {
  tile::Out out;  // empty: only the final state is wanted, q is not read and nothing kept
  tile::Out final_state;
  float* kept = nullptr;  // the states between chunks, or not wanted
};
struct DiagonalGradients {
  tile::In d_out, d_final_state;
  tile::Out dq, dk, dv, d_log_decay;
  tile::OutVector d_bonus;  // [key], overwritten
  tile::Out d_initial_state;
  tile::Out d_value_log_decay = {};
  const float* kept = nullptr;  // as forward left it; null: recomputed
};

// Scratch is counted in floats, aligned to 64 bytes, and belongs to the caller's thread.
struct DiagonalTable {
  int64_t (*kept)(int64_t tokens, int64_t key, int64_t value);  // floats
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const DiagonalTask& task, const DiagonalOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t tokens, int64_t key, int64_t value);
  void (*backward)(const DiagonalTask& task, const DiagonalGradients& gradients, float* scratch);
};
const DiagonalTable& table(IsaTag<Isa::kPlain>, const DiagonalTable*);
const DiagonalTable& table(IsaTag<Isa::kAvx2>, const DiagonalTable*);
const DiagonalTable& table(IsaTag<Isa::kAvx512>, const DiagonalTable*);
const DiagonalTable& table(IsaTag<Isa::kAvx512Bf16>, const DiagonalTable*);
const DiagonalTable& table(IsaTag<Isa::kAmx>, const DiagonalTable*);

}  // namespace weft::kernels
