#include "kernels/rows/group_norm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/group_norm.h"

namespace weft::kernels {
namespace {

void check(const GroupNorm& norm, ConstView x, ConstView weight,
           const GroupNormStatistics& statistics) {
  check_real(x, "group_norm: x");
  check_heads(x.width(), norm.heads, "group_norm");
  check_numbers(weight, x.width(), "group_norm: weight");
  check_numbers(statistics.mean.view(), x.rows() * norm.heads, "group_norm: mean");
  check_numbers(statistics.inv_deviation.view(), x.rows() * norm.heads,
                "group_norm: inv_deviation");
}

}  // namespace

void group_norm_forward(Exec& exec, const GroupNorm& norm, ConstView x, ConstView weight,
                        ConstView bias, View y, const GroupNormStatistics& statistics) {
  if (nothing_in(x)) return;
  check(norm, x, weight, statistics);
  check_matrix(y, x.rows(), x.width(), "group_norm: y");
  check_numbers(bias, x.width(), "group_norm: bias");
  dispatch(exec,
           {.name = "group_norm_forward",
            .type = x.dtype,
            .flops = 8 * elements(x),
            .read = bytes_of(x, weight, bias),
            .written = bytes_of(y, statistics.mean, statistics.inv_deviation)},
           cpu::group_norm_forward, norm, x, weight, bias, y, statistics);
}

void group_norm_backward(Exec& exec, const GroupNorm& norm, ConstView dy, ConstView x,
                         ConstView weight, const GroupNormStatistics& statistics,
                         const GroupNormGradients& gradients) {
  if (nothing_in(x)) return;
  check(norm, x, weight, statistics);
  check_matrix(dy, x.rows(), x.width(), "group_norm: dy");
  check_matrix(gradients.dx, x.rows(), x.width(), "group_norm: dx");
  check_numbers(gradients.d_weight, x.width(), "group_norm: d_weight");
  check_numbers(gradients.d_bias, x.width(), "group_norm: d_bias");
  dispatch(exec,
           {.name = "group_norm_backward",
            .type = x.dtype,
            .flops = 16 * elements(x),
            .read = bytes_of(dy, x, weight, statistics.mean, statistics.inv_deviation,
                             gradients.d_weight, gradients.d_bias),
            .written = bytes_of(gradients.dx, gradients.d_weight, gradients.d_bias)},
           cpu::group_norm_backward, norm, dy, x, weight, statistics, gradients);
}

}  // namespace weft::kernels
