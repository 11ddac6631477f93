#include "kernels/rows/l2_norm.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/l2_norm.h"

namespace weft::kernels {
namespace {

void check_heads(const L2Norm& norm, ConstView x) {
  check_real(x, "l2_norm: x");
  WEFT_CHECK(norm.heads > 0 && x.width() % norm.heads == 0, "l2_norm: {} channels, {} heads",
             x.width(), norm.heads);
}

}  // namespace

void l2_norm_forward(Exec& exec, const L2Norm& norm, ConstView x, View y, View inv_norm) {
  if (nothing_in(x)) return;
  check_heads(norm, x);
  const int64_t rows = x.rows(), width = x.width();
  check_matrix(y, rows, width, "l2_norm: y");
  const L2Forward args{rows_of(x),
                       rows_of(y),
                       vector_of<float>(inv_norm, rows * norm.heads, "l2_norm: inv_norm"),
                       norm.heads,
                       width / norm.heads,
                       norm.epsilon};
  const L2Table& table = table_of<L2Table>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void l2_norm_backward(Exec& exec, const L2Norm& norm, ConstView dy, ConstView y, ConstView inv_norm,
                      View dx) {
  if (nothing_in(dy)) return;
  check_heads(norm, dy);
  const int64_t rows = dy.rows(), width = dy.width();
  check_matrix(y, rows, width, "l2_norm: y");
  check_matrix(dx, rows, width, "l2_norm: dx");
  const L2Backward args{
      rows_of(dy), rows_of(y),
      rows_of(dx), vector_of<float>(inv_norm, rows * norm.heads, "l2_norm: inv_norm"),
      norm.heads,  width / norm.heads};
  const L2Table& table = table_of<L2Table>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels
