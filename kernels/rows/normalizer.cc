#include "kernels/rows/normalizer.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/normalizer.h"

namespace weft::kernels {
namespace {

void check(int64_t heads, ConstView narrow, ConstView wide) {
  check_real(narrow, "normalizer: x");
  check_heads(narrow.width(), heads, "normalizer");
  check_matrix(wide, narrow.rows(), narrow.width() + heads, "normalizer: wide");
}

}  // namespace

void append_ones(Exec& exec, int64_t heads, ConstView x, View wide) {
  if (nothing_in(wide)) return;
  check(heads, x, wide);
  dispatch(exec,
           {.name = "append_ones", .type = x.dtype, .read = bytes_of(x), .written = bytes_of(wide)},
           cpu::append_ones, heads, x, wide);
}

void drop_last_channel(Exec& exec, int64_t heads, ConstView wide, View x) {
  if (nothing_in(wide)) return;
  check(heads, x, wide);
  dispatch(exec,
           {.name = "drop_last_channel",
            .type = wide.dtype,
            .read = x.shape.elements() * size_of(wide.dtype),
            .written = bytes_of(x)},
           cpu::drop_last_channel, heads, wide, x);
}

void divide_by_last_channel(Exec& exec, int64_t heads, ConstView wide, View out, float epsilon) {
  if (nothing_in(wide)) return;
  check(heads, out, wide);
  dispatch(exec,
           {.name = "divide_by_last_channel",
            .type = wide.dtype,
            .flops = elements(wide),
            .read = bytes_of(wide),
            .written = bytes_of(out)},
           cpu::divide_by_last_channel, heads, wide, out, epsilon);
}

void divide_by_last_channel_backward(Exec& exec, int64_t heads, ConstView wide, ConstView d_out,
                                     View d_wide, float epsilon) {
  if (nothing_in(wide)) return;
  check(heads, d_out, wide);
  check_matrix(d_wide, wide.rows(), wide.width(), "normalizer: d_wide");
  dispatch(exec,
           {.name = "divide_by_last_channel_backward",
            .type = wide.dtype,
            .flops = 3 * elements(wide),
            .read = bytes_of(wide, d_out),
            .written = bytes_of(d_wide)},
           cpu::divide_by_last_channel_backward, heads, wide, d_out, d_wide, epsilon);
}

}  // namespace weft::kernels
