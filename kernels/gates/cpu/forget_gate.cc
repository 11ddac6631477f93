#include "kernels/gates/cpu/forget_gate.h"

#include <cmath>

#include "kernels/cpu/tasks.h"

// One number per token and head: too few to be worth vectors.
namespace weft::kernels::cpu {

void forget_gate_forward(Exec& exec, ConstView z, View log_forget) {
  const Extent extent = common_extent(z, log_forget);
  for_tiles(exec, extent, [&](const Box& box) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      const float* in = host<float>(z) + r * z.row_stride;
      float* out = host<float>(log_forget) + r * log_forget.row_stride;
      for (int64_t c = box.left; c < box.right; ++c) {
        out[c] = std::fmin(in[c], 0.0f) - std::log1p(std::exp(-std::fabs(in[c])));
      }
    }
  });
}

void forget_gate_backward(Exec& exec, ConstView z, ConstView d_log_forget, View dz) {
  const Extent extent = common_extent(z, d_log_forget, dz);
  for_tiles(exec, extent, [&](const Box& box) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      const float* in = host<float>(z) + r * z.row_stride;
      const float* d = host<float>(d_log_forget) + r * d_log_forget.row_stride;
      float* out = host<float>(dz) + r * dz.row_stride;
      for (int64_t c = box.left; c < box.right; ++c) out[c] = d[c] / (1.0f + std::exp(in[c]));
    }
  });
}

}  // namespace weft::kernels::cpu
