#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct CrossEntropy {
  ConstRows logits;  // f32
  const int32_t* targets;
  float* losses;
  Rows d_logits;  // may be absent
  int64_t width;
  float grad_scale;
};

// A slice of the vocabulary, and what its rank and all ranks know of a row: [rows, 3] each.
struct CrossEntropySlice {
  ConstRows logits;
  const int32_t* targets;
  int64_t width, first;
  float* parts = nullptr;
  const float* all = nullptr;
  int64_t ranks = 0, rows = 0;
  float* losses = nullptr;
  Rows d_logits = {};
  float grad_scale = 0;
};

struct CrossEntropyTable {
  void (*rows)(const CrossEntropy&, int64_t begin, int64_t end);
  void (*parts)(const CrossEntropySlice&, int64_t begin, int64_t end);
  void (*slice)(const CrossEntropySlice&, int64_t begin, int64_t end);
};
const CrossEntropyTable& table(IsaTag<Isa::kPlain>, const CrossEntropyTable*);
const CrossEntropyTable& table(IsaTag<Isa::kAvx2>, const CrossEntropyTable*);
const CrossEntropyTable& table(IsaTag<Isa::kAvx512>, const CrossEntropyTable*);

}  // namespace weft::kernels
