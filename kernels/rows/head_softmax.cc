#include "kernels/rows/head_softmax.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/head_softmax.h"

namespace weft::kernels {

void head_softmax_forward(Exec& exec, int64_t heads, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_real(x, "head_softmax: x");
  check_heads(x.width(), heads, "head_softmax");
  check_matrix(y, x.rows(), x.width(), "head_softmax: y");
  dispatch(exec,
           {.name = "head_softmax_forward",
            .type = x.dtype,
            .flops = 7 * elements(x),
            .read = bytes_of(x),
            .written = bytes_of(y)},
           cpu::head_softmax_forward, heads, x, y);
}

void head_softmax_backward(Exec& exec, int64_t heads, ConstView y, ConstView dy, View dx) {
  if (nothing_in(y)) return;
  check_real(y, "head_softmax: y");
  check_heads(y.width(), heads, "head_softmax");
  check_matrix(dy, y.rows(), y.width(), "head_softmax: dy");
  check_matrix(dx, y.rows(), y.width(), "head_softmax: dx");
  dispatch(exec,
           {.name = "head_softmax_backward",
            .type = y.dtype,
            .flops = 4 * elements(y),
            .read = bytes_of(y, dy),
            .written = bytes_of(dx)},
           cpu::head_softmax_backward, heads, y, dy, dx);
}

}  // namespace weft::kernels
