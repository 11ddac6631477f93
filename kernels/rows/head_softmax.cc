#include "kernels/rows/head_softmax.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/head_softmax.h"

namespace weft::kernels {
namespace {

int64_t width_of(int64_t heads, ConstView x) {
  check_real(x, "head_softmax: x");
  WEFT_CHECK(heads > 0 && x.width() % heads == 0, "head_softmax: {} channels of {} heads",
             x.width(), heads);
  return x.width() / heads;
}

}  // namespace

void head_softmax_forward(Exec& exec, int64_t heads, ConstView x, View y) {
  if (nothing_in(x)) return;
  const int64_t width = width_of(heads, x);
  check_matrix(y, x.rows(), x.width(), "head_softmax: y");
  const HeadSoftmaxArgs args{rows_of(x), {}, rows_of(y), heads, width};
  const HeadSoftmaxTable& table = table_of<HeadSoftmaxTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void head_softmax_backward(Exec& exec, int64_t heads, ConstView y, ConstView dy, View dx) {
  if (nothing_in(y)) return;
  const int64_t width = width_of(heads, y);
  check_matrix(dy, y.rows(), y.width(), "head_softmax: dy");
  check_matrix(dx, y.rows(), y.width(), "head_softmax: dx");
  const HeadSoftmaxArgs args{rows_of(y), rows_of(dy), rows_of(dx), heads, width};
  const HeadSoftmaxTable& table = table_of<HeadSoftmaxTable>(exec.isa);
  for_blocks(exec, row_blocks(y.rows(), y.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels
