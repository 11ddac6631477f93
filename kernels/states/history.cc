#include "kernels/states/history.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/history.h"

namespace weft::kernels {
namespace {

void check_histories(ConstView counts, ConstView a, ConstView b) {
  WEFT_CHECK(a.shape.dims() == 3 && a.shape == b.shape, "histories {} and {}", a.shape, b.shape);
  check_numbers(a, a.shape.elements(), "append_history: rows");
  check_numbers(b, a.shape.elements(), "append_history: rows");
  check_numbers(counts, a.shape[0], "append_history: counts");
}

}  // namespace

void append_history(Exec& exec, ConstView counts, ConstView added, ConstView entering,
                    View leaving) {
  check_histories(counts, added, entering);
  check_histories(counts, added, leaving);
  if (nothing_in(leaving)) return;
  dispatch(
      exec,
      {.name = "append_history", .read = bytes_of(counts, leaving), .written = bytes_of(leaving)},
      cpu::append_history, counts, added, entering, leaving);
}

void append_history_adjoint(Exec& exec, ConstView counts, ConstView d_leaving, View d_entering) {
  check_histories(counts, d_leaving, d_entering);
  if (nothing_in(d_entering)) return;
  dispatch(exec,
           {.name = "append_history_adjoint",
            .read = bytes_of(counts, d_leaving),
            .written = bytes_of(d_entering)},
           cpu::append_history_adjoint, counts, d_leaving, d_entering);
}

void add_history_counts(Exec& exec, ConstView first, ConstView second, int64_t rows, View sum) {
  const int64_t n = sum.shape.elements();
  check_numbers(first, n, "add_history_counts: first");
  check_numbers(second, n, "add_history_counts: second");
  check_numbers(sum, n, "add_history_counts: sum");
  if (nothing_in(sum)) return;
  dispatch(exec,
           {.name = "add_history_counts",
            .flops = 2 * elements(sum),
            .read = bytes_of(first, second),
            .written = bytes_of(sum)},
           cpu::add_history_counts, first, second, rows, sum);
}

}  // namespace weft::kernels
