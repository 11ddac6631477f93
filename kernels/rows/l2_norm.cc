#include "kernels/rows/l2_norm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/l2_norm.h"

namespace weft::kernels {

void l2_norm_forward(Exec& exec, const L2Norm& norm, ConstView x, View y, View inv_norm) {
  if (nothing_in(x)) return;
  check_real(x, "l2_norm: x");
  check_heads(x.width(), norm.heads, "l2_norm");
  check_matrix(y, x.rows(), x.width(), "l2_norm: y");
  check_numbers(inv_norm, x.rows() * norm.heads, "l2_norm: inv_norm");
  dispatch(exec,
           {.name = "l2_norm_forward",
            .type = x.dtype,
            .flops = 3 * elements(x),
            .read = bytes_of(x),
            .written = bytes_of(y, inv_norm)},
           cpu::l2_norm_forward, norm, x, y, inv_norm);
}

void l2_norm_backward(Exec& exec, const L2Norm& norm, ConstView dy, ConstView y, ConstView inv_norm,
                      View dx) {
  if (nothing_in(dy)) return;
  check_real(dy, "l2_norm: dy");
  check_heads(dy.width(), norm.heads, "l2_norm");
  check_matrix(y, dy.rows(), dy.width(), "l2_norm: y");
  check_matrix(dx, dy.rows(), dy.width(), "l2_norm: dx");
  check_numbers(inv_norm, dy.rows() * norm.heads, "l2_norm: inv_norm");
  dispatch(exec,
           {.name = "l2_norm_backward",
            .type = y.dtype,
            .flops = 5 * elements(y),
            .read = bytes_of(dy, y, inv_norm),
            .written = bytes_of(dx)},
           cpu::l2_norm_backward, norm, dy, y, inv_norm, dx);
}

}  // namespace weft::kernels
