#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

// One document: tokens [begin, end). Vectors are [heads].
struct MlstmDocument {
  ConstRows i, f;
  const float* entering;  // or absent
  int64_t begin, end, heads;
  bool split;
};
struct MlstmDocumentBack {
  const float* m;  // these [tokens, heads]
  const float* d_log_decay;
  const float* d_rest;
  const float* dm;
  const float* d_leaving_rest;  // or absent
  const float* d_leaving_m;     // or absent
  Rows di, df;
  float* d_entering;  // or absent
};
struct MlstmKeyRows {
  ConstRows k, i, rest;
  Rows keys;
  int64_t heads, width;
};
struct MlstmReadRows {
  ConstRows wide, rest, m, d_out;  // d_out, d_wide, d_rest, dm in backward only
  Rows out, d_wide, d_rest, dm;
  int64_t heads, width;
  float epsilon;
};

struct MlstmTable {
  void (*gates_forward)(const MlstmDocument&, float* log_decay, float* rest, float* m);
  void (*gates_backward)(const MlstmDocument&, const MlstmDocumentBack&);
  // Rows [begin, end).
  void (*keys)(const MlstmKeyRows&, int64_t begin, int64_t end);
  void (*read_forward)(const MlstmReadRows&, int64_t begin, int64_t end);
  void (*read_backward)(const MlstmReadRows&, int64_t begin, int64_t end);
  void (*center)(const ConstRows& x, const Rows& y, int64_t heads, int64_t width, Box rows);
};
const MlstmTable& table(IsaTag<Isa::kPlain>, const MlstmTable*);
const MlstmTable& table(IsaTag<Isa::kAvx2>, const MlstmTable*);
const MlstmTable& table(IsaTag<Isa::kAvx512>, const MlstmTable*);

}  // namespace weft::kernels
