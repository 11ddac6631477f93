#include "kernels/gates/lower_bounds.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/lower_bounds.h"
#include "kernels/rows/elementwise.h"

namespace weft::kernels {
namespace {

void check(int64_t layer, ConstView raw, ConstView bound) {
  check_f32(raw, "lower bounds: raw");
  WEFT_CHECK(layer < raw.rows(), "lower bound of layer {} of {}", layer, raw.rows());
  check_numbers(bound, raw.width(), "lower bounds: bound");
}

}  // namespace

void lower_bound_forward(Exec& exec, int64_t layer, ConstView raw, View bound) {
  check(layer, raw, bound);
  dispatch(exec,
           {.name = "lower_bound_forward",
            .flops = 4 * elements(raw),
            .read = bytes_of(raw),
            .written = bytes_of(bound)},
           cpu::lower_bound_forward, layer, raw, bound);
}

void lower_bound_backward(Exec& exec, int64_t layer, ConstView raw, ConstView d_bound, View d_raw) {
  check(layer, raw, d_bound);
  check_f32_matrix(d_raw, raw.rows(), raw.width(), "lower bounds: d_raw");
  dispatch(exec,
           {.name = "lower_bound_backward",
            .flops = 8 * elements(raw),
            .read = bytes_of(raw, d_bound, d_raw),
            .written = bytes_of(d_raw)},
           cpu::lower_bound_backward, layer, raw, d_bound, d_raw);
}

void lower_bounds_backward(Exec& exec, ConstView raw, View gradient) {
  const Tensor bounds = exec.scratch(gradient.shape);
  copy(exec, gradient, bounds);
  fill(exec, gradient, 0.0f);
  for (int64_t layer = 1; layer < raw.rows(); ++layer) {
    lower_bound_backward(exec, layer, raw, bounds.row(layer), gradient);
  }
}

}  // namespace weft::kernels
