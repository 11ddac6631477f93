#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

// w -= decay * w + rate * m / (sqrt(v) * correction + epsilon)
struct AdamWArgs {
  float* master;
  const float* grad;
  float* m;
  float* v;
  bf16* value;  // may be absent
  float grad_scale;
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta, rounded once
  float rate;          // lr / (1 - beta1^step)
  float correction;    // 1 / sqrt(1 - beta2^step)
  float epsilon;
  float decay;  // lr * weight_decay
};

struct AdamWTable {
  void (*update)(const AdamWArgs&, int64_t begin, int64_t end);
};
const AdamWTable& table(IsaTag<Isa::kPlain>, const AdamWTable*);
const AdamWTable& table(IsaTag<Isa::kAvx2>, const AdamWTable*);
const AdamWTable& table(IsaTag<Isa::kAvx512>, const AdamWTable*);

}  // namespace weft::kernels
