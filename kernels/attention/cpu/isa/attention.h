#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// Queries [begin, begin + count) of one head of one document; views and pointers cover the whole
// document, q and what has its rows from the first query, k and what has its rows from the first
// key. `begin` is a multiple of query_block.
struct AttentionTask {
  tile::In q, k, v;
  float scale = 1.0f;
  int64_t window = 0;  // 0: no limit
  int64_t begin = 0, count = 0;
  int64_t start = 0;                  // position of the document's first query among its keys
  const double* forgotten = nullptr;  // running sums of the log forget gates; absent: no bias
  // First block of keys that each block of queries is computed with; absent: the first.
  const int32_t* first_blocks = nullptr;
};
struct AttentionOutputs {
  tile::Out out;
  tile::OutVector log_sum_exp;
};
// dk, dv, d_forgotten: f32; the part of these queries is added.
struct AttentionGradientTask {
  tile::In out, d_out;
  tile::InVector log_sum_exp;
  tile::Out dq, dk, dv;
  float* d_forgotten = nullptr;  // contiguous; absent when `forgotten` is
};

// Scratch is counted in floats, aligned to 64 bytes, and belongs to the caller's thread.
struct AttentionTable {
  int64_t query_block;  // tasks of this many queries, or of a multiple, waste least
  int64_t key_block;
  int64_t (*forward_scratch)(int64_t key, int64_t value);
  void (*forward)(const AttentionTask& task, const AttentionOutputs& outputs, float* scratch);
  int64_t (*backward_scratch)(int64_t key, int64_t value);
  void (*backward)(const AttentionTask& task, const AttentionGradientTask& gradients,
                   float* scratch);
  // The largest norm of a row.
  float (*largest_norm)(const tile::In& rows);
};
const AttentionTable& table(IsaTag<Isa::kPlain>, const AttentionTable*);
const AttentionTable& table(IsaTag<Isa::kAvx2>, const AttentionTable*);
const AttentionTable& table(IsaTag<Isa::kAvx512>, const AttentionTable*);
const AttentionTable& table(IsaTag<Isa::kAvx512Bf16>, const AttentionTable*);
const AttentionTable& table(IsaTag<Isa::kAmx>, const AttentionTable*);

}  // namespace weft::kernels
