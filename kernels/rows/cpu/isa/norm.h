#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/rows/gate_activation.h"

namespace weft::kernels {

struct RmsForward {
  ConstRows x;
  Rows y;
  const float* weight;
  float* inv_rms;
  int64_t width;
  float epsilon;
};

struct RmsBackward {
  ConstRows dy, x, residual;  // residual may be absent
  Rows dx;
  const float* weight;
  const float* inv_rms;
  int64_t width;
};

struct HeadForward {
  ConstRows x, gate;
  Rows y;
  const float* weight;
  float* inv_rms;
  int64_t heads, width;
  int64_t weight_stride;  // from one head's weights to the next one's: 0 when shared
  float epsilon;
  GateActivation kind;
};

struct HeadBackward {
  ConstRows dy, x, gate;
  Rows dx, d_gate;
  const float* weight;
  const float* inv_rms;
  int64_t heads, width, weight_stride;
  GateActivation kind;
};
inline constexpr int64_t kHeadScratch = 4;  // rows of `width` floats

// Rows [begin, end). Backward: d_weight is the block's own and is overwritten.
struct NormTable {
  void (*rms_forward)(const RmsForward&, int64_t begin, int64_t end);
  void (*rms_backward)(const RmsBackward&, int64_t begin, int64_t end, float* d_weight);
  void (*head_forward)(const HeadForward&, int64_t begin, int64_t end);
  void (*head_backward)(const HeadBackward&, int64_t begin, int64_t end, float* d_weight,
                        float* scratch);
};
const NormTable& table(IsaTag<Isa::kPlain>, const NormTable*);
const NormTable& table(IsaTag<Isa::kAvx2>, const NormTable*);
const NormTable& table(IsaTag<Isa::kAvx512>, const NormTable*);

}  // namespace weft::kernels
