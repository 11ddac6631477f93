#pragma once

#include "kernels/cpu/by_isa.h"

namespace weft::kernels {

// to = a * x + b * y; no y: to = a * x
struct MlstmMix {
  const float *x, *y;
  float* to;
  int64_t size;
  float a, b;
};

// One head, factor * (c [dk, dv] | n [dk]) beside wide [dk, dv + 1].
struct MlstmJoin {
  const float *c, *n;
  int64_t dk, dv;
  float factor;
};
struct MlstmSplit {
  float *c, *n;
  int64_t dk, dv;
  float factor;
};

struct MlstmStatesTable {
  void (*mix)(const MlstmMix&);
  double (*dot)(const float* x, const float* y, int64_t size);
  void (*join)(const MlstmJoin&, float* wide);
  void (*split)(const float* wide, const MlstmSplit&);
};
const MlstmStatesTable& table(IsaTag<Isa::kPlain>, const MlstmStatesTable*);
const MlstmStatesTable& table(IsaTag<Isa::kAvx2>, const MlstmStatesTable*);
const MlstmStatesTable& table(IsaTag<Isa::kAvx512>, const MlstmStatesTable*);

}  // namespace weft::kernels
