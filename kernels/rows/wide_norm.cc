#include "kernels/rows/wide_norm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/wide_norm.h"

namespace weft::kernels {
namespace {

// x [n, d], statistics [n, groups]
void check(ConstView x, ConstView statistics) {
  check_f32(x, "wide_norm: x");
  check_heads(x.width(), statistics.width(), "wide_norm: groups");
  check_f32_matrix(statistics, x.rows(), statistics.width(), "wide_norm: statistics");
}

}  // namespace

void wide_norm_squares(Exec& exec, ConstView x, int64_t groups, View squares) {
  if (nothing_in(x)) return;
  check(x, squares);
  WEFT_CHECK(squares.width() == groups, "wide_norm: sums of {} groups, expected {}",
             squares.width(), groups);
  dispatch(exec,
           {.name = "wide_norm_squares",
            .flops = 2 * elements(x),
            .read = bytes_of(x),
            .written = bytes_of(squares)},
           cpu::wide_norm_squares, x, groups, squares);
}

void wide_norm_inverse(Exec& exec, ConstView squares, int64_t width, float epsilon, View inv_rms) {
  if (nothing_in(squares)) return;
  check_f32(squares, "wide_norm: squares");
  check_f32_matrix(inv_rms, squares.rows(), squares.width(), "wide_norm: inv_rms");
  dispatch(exec,
           {.name = "wide_norm_inverse",
            .flops = 4 * elements(squares),
            .read = bytes_of(squares),
            .written = bytes_of(inv_rms)},
           cpu::wide_norm_inverse, squares, width, epsilon, inv_rms);
}

void wide_norm_scale(Exec& exec, ConstView x, ConstView inv_rms, ConstView weight, View y) {
  if (nothing_in(x)) return;
  check(x, inv_rms);
  check_numbers(weight, x.width(), "wide_norm: weight");
  check_f32_matrix(y, x.rows(), x.width(), "wide_norm: y");
  dispatch(exec,
           {.name = "wide_norm_scale",
            .flops = 2 * elements(x),
            .read = bytes_of(x, inv_rms, weight),
            .written = bytes_of(y)},
           cpu::wide_norm_scale, x, inv_rms, weight, y);
}

void wide_norm_products(Exec& exec, ConstView dy, ConstView x, ConstView inv_rms, ConstView weight,
                        View d_weight, View products) {
  if (nothing_in(x)) return;
  check(x, inv_rms);
  check_f32_matrix(dy, x.rows(), x.width(), "wide_norm: dy");
  check_numbers(weight, x.width(), "wide_norm: weight");
  check_numbers(d_weight, x.width(), "wide_norm: d_weight");
  check_f32_matrix(products, x.rows(), inv_rms.width(), "wide_norm: products");
  dispatch(exec,
           {.name = "wide_norm_products",
            .flops = 7 * elements(x),
            .read = bytes_of(dy, x, inv_rms, weight, d_weight),
            .written = bytes_of(d_weight, products)},
           cpu::wide_norm_products, dy, x, inv_rms, weight, d_weight, products);
}

void wide_norm_backward(Exec& exec, const WideNormBackward& call) {
  if (nothing_in(call.x)) return;
  check(call.x, call.inv_rms);
  check(call.x, call.mean);
  check_f32_matrix(call.dy, call.x.rows(), call.x.width(), "wide_norm: dy");
  check_f32_matrix(call.dx, call.x.rows(), call.x.width(), "wide_norm: dx");
  check_numbers(call.weight, call.x.width(), "wide_norm: weight");
  dispatch(exec,
           {.name = "wide_norm_backward",
            .flops = 5 * elements(call.x),
            .read = bytes_of(call.dy, call.x, call.inv_rms, call.weight, call.mean),
            .written = bytes_of(call.dx)},
           cpu::wide_norm_backward, call);
}

}  // namespace weft::kernels
