#include "kernels/routing/mixture.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/routing/cpu/mixture.h"

namespace weft::kernels {
namespace {

void check_mix(ConstView row, ConstView rows, ConstView weight, ConstView y) {
  const int64_t pairs = row.shape.elements();
  check_vector<int32_t>(row, pairs, "mix_rows: row");
  check_matrix(rows, pairs, y.width(), "mix_rows: rows");
  check_matrix(y, row.rows(), y.width(), "mix_rows: y");
  check_numbers(weight, pairs, "mix_rows: weight");
}

}  // namespace

void mix_rows_forward(Exec& exec, ConstView row, ConstView rows, ConstView weight, View y) {
  if (nothing_in(y)) return;
  check_mix(row, rows, weight, y);
  dispatch(exec,
           {.name = "mix_rows_forward",
            .type = rows.dtype,
            .flops = 2.0 * elements(rows),
            .read = bytes_of(row, rows, weight),
            .written = bytes_of(y)},
           cpu::mix_rows_forward, row, rows, weight, y);
}

void mix_rows_backward(Exec& exec, ConstView row, const MixRowsBackward& in) {
  if (nothing_in(in.dy)) return;
  check_mix(row, in.rows, in.weight, in.dy);
  check_matrix(in.d_rows, in.rows.rows(), in.dy.width(), "mix_rows: d_rows");
  check_numbers(in.d_weight, in.rows.rows(), "mix_rows: d_weight");
  dispatch(exec,
           {.name = "mix_rows_backward",
            .type = in.rows.dtype,
            .flops = 3.0 * elements(in.rows),
            .read = bytes_of(row, in.rows, in.weight, in.dy),
            .written = bytes_of(in.d_rows, in.d_weight)},
           cpu::mix_rows_backward, row, in);
}

}  // namespace weft::kernels
