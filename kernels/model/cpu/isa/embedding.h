#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

struct EmbeddingForward {
  const int32_t* tokens;
  ConstRows table;
  Rows y;
  int64_t width;
  int64_t first, count;  // the entries that the table has
};

struct EmbeddingBackward {
  const int32_t* tokens;
  ConstRows dy;
  Rows d_table;  // f32
  int64_t first, count;
};

struct EmbeddingTable {
  void (*forward)(const EmbeddingForward&, int64_t begin, int64_t end);
  // The box is one of dy: its rows and its columns.
  void (*backward)(const EmbeddingBackward&, const Box&);
};
const EmbeddingTable& table(IsaTag<Isa::kPlain>, const EmbeddingTable*);
const EmbeddingTable& table(IsaTag<Isa::kAvx2>, const EmbeddingTable*);
const EmbeddingTable& table(IsaTag<Isa::kAvx512>, const EmbeddingTable*);

}  // namespace weft::kernels
