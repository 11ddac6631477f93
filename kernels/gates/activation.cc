#include "kernels/gates/activation.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/activation.h"

namespace weft::kernels {

void activation_forward(Exec& exec, Activation f, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_alike("activation", x, y);
  dispatch(exec,
           {.name = "activation_forward",
            .type = x.dtype,
            .flops = 4 * elements(x),
            .read = bytes_of(x),
            .written = bytes_of(y)},
           cpu::activation_forward, f, x, y);
}

void activation_backward(Exec& exec, Activation f, ConstView x, ConstView dy, View dx) {
  if (nothing_in(x)) return;
  check_alike("activation", x, dy, dx);
  dispatch(exec,
           {.name = "activation_backward",
            .type = x.dtype,
            .flops = 8 * elements(x),
            .read = bytes_of(x, dy),
            .written = bytes_of(dx)},
           cpu::activation_backward, f, x, dy, dx);
}

}  // namespace weft::kernels
