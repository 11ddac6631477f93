#include "kernels/rows/elementwise.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/elementwise.h"

namespace weft::kernels {

void copy(Exec& exec, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_alike("copy", x, y);
  dispatch(exec, {.name = "copy", .type = x.dtype, .read = bytes_of(x), .written = bytes_of(y)},
           cpu::copy, x, y);
}

void add(Exec& exec, ConstView a, ConstView b, View y) {
  if (nothing_in(a)) return;
  check_alike("add", a, b, y);
  dispatch(exec,
           {.name = "add",
            .type = a.dtype,
            .flops = elements(y),
            .read = bytes_of(a, b),
            .written = bytes_of(y)},
           cpu::add, a, b, y);
}

void scale(Exec& exec, ConstView x, float factor, View y) {
  if (nothing_in(x)) return;
  check_alike("scale", x, y);
  dispatch(exec,
           {.name = "scale",
            .type = x.dtype,
            .flops = elements(y),
            .read = bytes_of(x),
            .written = bytes_of(y)},
           cpu::scale, x, factor, y);
}

void shift_scale(Exec& exec, ConstView x, float offset, float factor, View y) {
  if (nothing_in(x)) return;
  check_alike("shift_scale", x, y);
  dispatch(exec,
           {.name = "shift_scale",
            .type = x.dtype,
            .flops = 2 * elements(y),
            .read = bytes_of(x),
            .written = bytes_of(y)},
           cpu::shift_scale, x, offset, factor, y);
}

void fill(Exec& exec, View y, float value) {
  if (nothing_in(y)) return;
  check_real(y, "fill: y");
  dispatch(exec, {.name = "fill", .type = y.dtype, .written = bytes_of(y)}, cpu::fill, y, value);
}

void add_bias(Exec& exec, ConstView bias, View y) {
  if (nothing_in(y)) return;
  check_real(y, "add_bias: y");
  check_numbers(bias, y.width(), "add_bias: bias");
  dispatch(exec,
           {.name = "add_bias",
            .type = y.dtype,
            .flops = elements(y),
            .read = bytes_of(bias, y),
            .written = bytes_of(y)},
           cpu::add_bias, bias, y);
}

}  // namespace weft::kernels
