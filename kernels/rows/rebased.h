#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// The quadratic feature map of Rebased, per head of width f, with x^ = LayerNorm(x; gamma, beta):
//   phi(x) = ( x^_a^2 f^{-1/2} for all a,   x^_a x^_b (2 / f)^{1/2} for all a < b, by a, then b )
// so that phi(q) . phi(k) = (q^ . k^)^2 / f. x [tokens, heads * f] f32 or bf16; phi f32 [tokens,
// heads * F], F = f (f + 1) / 2: a score near zero is a difference of large products, which bf16
// would make negative. gamma, beta f32 [f].
struct RebasedFeatures {
  int64_t heads = 1;
  float epsilon = 1e-5f;
};
inline constexpr int64_t kWidestRebased = 128;  // f at most
inline int64_t rebased_width(int64_t f) { return f * (f + 1) / 2; }
void rebased_features_forward(Exec& exec, const RebasedFeatures& map, ConstView x, ConstView gamma,
                              ConstView beta, View phi);
// dx = ... (f32 or bf16);  d_gamma, d_beta [f] += ...
struct RebasedFeaturesBackward {
  ConstView x, gamma, beta, d_phi;
  View dx, d_gamma, d_beta;
};
void rebased_features_backward(Exec& exec, const RebasedFeatures& map,
                               const RebasedFeaturesBackward& in);

}  // namespace weft::kernels
