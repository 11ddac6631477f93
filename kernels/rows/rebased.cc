#include "kernels/rows/rebased.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/rebased.h"

namespace weft::kernels {
namespace {

void check(const RebasedFeatures& map, ConstView x, ConstView gamma, ConstView beta,
           ConstView phi) {
  check_real(x, "rebased: x");
  check_heads(x.width(), map.heads, "rebased");
  const int64_t f = x.width() / map.heads;
  WEFT_CHECK(f <= kWidestRebased, "rebased: {} channels per head, at most {}", f, kWidestRebased);
  check_numbers(gamma, f, "rebased: gamma");
  check_numbers(beta, f, "rebased: beta");
  check_f32_matrix(phi, x.rows(), map.heads * rebased_width(f), "rebased: phi");
}

}  // namespace

void rebased_features_forward(Exec& exec, const RebasedFeatures& map, ConstView x, ConstView gamma,
                              ConstView beta, View phi) {
  if (nothing_in(x)) return;
  check(map, x, gamma, beta, phi);
  dispatch(exec,
           {.name = "rebased_features_forward",
            .type = x.dtype,
            .flops = 2 * elements(phi) + 8 * elements(x),
            .read = bytes_of(x, gamma, beta),
            .written = bytes_of(phi)},
           cpu::rebased_features_forward, map, x, gamma, beta, phi);
}

void rebased_features_backward(Exec& exec, const RebasedFeatures& map,
                               const RebasedFeaturesBackward& in) {
  if (nothing_in(in.x)) return;
  check(map, in.x, in.gamma, in.beta, in.d_phi);
  const int64_t f = in.x.width() / map.heads;
  check_matrix(in.dx, in.x.rows(), in.x.width(), "rebased: dx");
  check_numbers(in.d_gamma, f, "rebased: d_gamma");
  check_numbers(in.d_beta, f, "rebased: d_beta");
  dispatch(exec,
           {.name = "rebased_features_backward",
            .type = in.x.dtype,
            .flops = 5 * elements(in.d_phi) + 20 * elements(in.x),
            .read = bytes_of(in.x, in.gamma, in.beta, in.d_phi, in.d_gamma, in.d_beta),
            .written = bytes_of(in.dx, in.d_gamma, in.d_beta)},
           cpu::rebased_features_backward, map, in);
}

}  // namespace weft::kernels
