#include "kernels/rows/norm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/norm.h"

namespace weft::kernels {
namespace {

void check_head_norm(const HeadNorm& norm, ConstView x, ConstView gate, ConstView weight,
                     ConstView inv_rms) {
  check_real(x, "head_norm: x");
  WEFT_CHECK(norm.heads > 0 && x.width() % norm.heads == 0, "head_norm: {} channels, {} heads",
             x.width(), norm.heads);
  WEFT_CHECK(given(gate) == (norm.gate != GateActivation::kNone) || x.rows() == 0,
             "head_norm: a gate and its activation are given together or not at all");
  if (given(gate)) check_matrix(gate, x.rows(), x.width(), "head_norm: gate");
  const int64_t width = x.width() / norm.heads, weights = weight.shape.elements();
  WEFT_CHECK(weights == width || weights == x.width(),
             "head_norm: {} weights for {} heads of width {}", weights, norm.heads, width);
  check_numbers(weight, weights, "head_norm: weight");
  check_numbers(inv_rms, x.rows() * norm.heads, "head_norm: inv_rms");
}

}  // namespace

void rms_norm_forward(Exec& exec, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms) {
  check_real(x, "rms_norm: x");
  if (nothing_in(x)) return;
  check_matrix(y, x.rows(), x.width(), "rms_norm: y");
  check_numbers(weight, x.width(), "rms_norm: weight");
  check_numbers(inv_rms, x.rows(), "rms_norm: inv_rms");
  dispatch(exec,
           {.name = "rms_norm_forward",
            .type = x.dtype,
            .flops = 4.0 * static_cast<double>(x.shape.elements()),
            .read = bytes_of(x, weight),
            .written = bytes_of(y, inv_rms)},
           cpu::rms_norm_forward, x, weight, epsilon, y, inv_rms);
}

void rms_norm_backward(Exec& exec, ConstView dy, ConstView x, ConstView weight, ConstView inv_rms,
                       ConstView residual, View dx, View d_weight) {
  check_real(x, "rms_norm: x");
  const int64_t rows = x.rows(), width = x.width();
  if (nothing_in(x)) return;
  check_matrix(dy, rows, width, "rms_norm: dy");
  check_matrix(dx, rows, width, "rms_norm: dx");
  if (given(residual)) check_matrix(residual, rows, width, "rms_norm: residual");
  check_numbers(weight, width, "rms_norm: weight");
  check_numbers(inv_rms, rows, "rms_norm: inv_rms");
  check_numbers(d_weight, width, "rms_norm: d_weight");
  dispatch(exec,
           {.name = "rms_norm_backward",
            .type = x.dtype,
            .flops = 11.0 * static_cast<double>(x.shape.elements()),
            .read = bytes_of(dy, x, weight, inv_rms, residual, d_weight),
            .written = bytes_of(dx, d_weight)},
           cpu::rms_norm_backward, dy, x, weight, inv_rms, residual, dx, d_weight);
}

void head_norm_forward(Exec& exec, const HeadNorm& norm, ConstView x, ConstView gate,
                       ConstView weight, View y, View inv_rms) {
  check_head_norm(norm, x, gate, weight, inv_rms);
  if (nothing_in(x)) return;
  check_matrix(y, x.rows(), x.width(), "head_norm: y");
  dispatch(exec,
           {.name = "head_norm_forward",
            .type = x.dtype,
            .flops = 10.0 * static_cast<double>(x.shape.elements()),
            .read = bytes_of(x, gate, weight),
            .written = bytes_of(y, inv_rms)},
           cpu::head_norm_forward, norm, x, gate, weight, y, inv_rms);
}

void head_norm_backward(Exec& exec, const HeadNorm& norm, ConstView dy, ConstView x, ConstView gate,
                        ConstView weight, ConstView inv_rms, View dx, View d_gate, View d_weight) {
  const int64_t rows = x.rows(), width = x.width();
  check_head_norm(norm, x, gate, weight, inv_rms);
  if (nothing_in(x)) return;
  check_matrix(dy, rows, width, "head_norm: dy");
  check_matrix(dx, rows, width, "head_norm: dx");
  if (given(gate)) check_matrix(d_gate, rows, width, "head_norm: d_gate");
  check_numbers(d_weight, weight.shape.elements(), "head_norm: d_weight");
  dispatch(exec,
           {.name = "head_norm_backward",
            .type = x.dtype,
            .flops = 22.0 * static_cast<double>(x.shape.elements()),
            .read = bytes_of(dy, x, gate, weight, inv_rms, d_weight),
            .written = bytes_of(dx, d_gate, d_weight)},
           cpu::head_norm_backward, norm, dy, x, gate, weight, inv_rms, dx, d_gate, d_weight);
}

}  // namespace weft::kernels
