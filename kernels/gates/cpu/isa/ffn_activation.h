#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/gates/ffn_activation.h"

namespace weft::kernels {

struct Hidden {
  FfnActivation a;
  ConstRows pre, dh;   // dh, d_pre and d_scale in backward only
  const float* scale;  // absent: 1
  Rows h;              // absent in backward where it is not wanted
  Rows d_pre;
  float* d_scale;  // may be absent
  int64_t width;   // of h
};

struct FfnActivationTable {
  void (*forward)(const Hidden&, int64_t begin, int64_t end);
  void (*backward)(const Hidden&, int64_t begin, int64_t end);
};
const FfnActivationTable& table(IsaTag<Isa::kPlain>, const FfnActivationTable*);
const FfnActivationTable& table(IsaTag<Isa::kAvx2>, const FfnActivationTable*);
const FfnActivationTable& table(IsaTag<Isa::kAvx512>, const FfnActivationTable*);

}  // namespace weft::kernels
