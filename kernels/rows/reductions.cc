#include "kernels/rows/reductions.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/reductions.h"

namespace weft::kernels {

void column_sum(Exec& exec, ConstView x, View sum) {
  if (nothing_in(x)) return;
  check_real(x, "column_sum: x");
  check_numbers(sum, x.width(), "column_sum: sum");
  dispatch(exec,
           {.name = "column_sum",
            .type = x.dtype,
            .flops = elements(x),
            .read = bytes_of(x, sum),
            .written = bytes_of(sum)},
           cpu::column_sum, x, sum);
}

void column_mean(Exec& exec, ConstView x, View mean) {
  if (nothing_in(mean)) return;
  check_real(x, "column_mean: x");
  check_numbers(mean, x.width(), "column_mean: mean");
  dispatch(exec,
           {.name = "column_mean",
            .type = x.dtype,
            .flops = elements(x) + elements(mean),
            .read = bytes_of(x),
            .written = bytes_of(mean)},
           cpu::column_mean, x, mean);
}

void add_sum(Exec& exec, ConstView x, View sum) {
  check_numbers(x, x.shape.elements(), "add_sum: x");
  check_vector<double>(sum, 1, "add_sum: sum");
  dispatch(
      exec,
      {.name = "add_sum", .flops = elements(x), .read = bytes_of(x, sum), .written = bytes_of(sum)},
      cpu::add_sum, x, sum);
}

void sum_of_squares(Exec& exec, ConstView x, View sum) {
  check_f32(x, "sum_of_squares: x");
  check_vector<double>(sum, 1, "sum_of_squares: sum");
  dispatch(exec,
           {.name = "sum_of_squares",
            .flops = 2 * elements(x),
            .read = bytes_of(x),
            .written = bytes_of(sum)},
           cpu::sum_of_squares, x, sum);
}

}  // namespace weft::kernels
