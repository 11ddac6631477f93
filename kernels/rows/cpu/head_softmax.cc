#include "kernels/rows/cpu/head_softmax.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/head_softmax.h"

namespace weft::kernels::cpu {

void head_softmax_forward(Exec& exec, int64_t heads, ConstView x, View y) {
  const HeadSoftmaxArgs args{rows_of(x), {}, rows_of(y), heads, x.width() / heads};
  const HeadSoftmaxTable& table = table_of<HeadSoftmaxTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void head_softmax_backward(Exec& exec, int64_t heads, ConstView y, ConstView dy, View dx) {
  const HeadSoftmaxArgs args{rows_of(y), rows_of(dy), rows_of(dx), heads, y.width() / heads};
  const HeadSoftmaxTable& table = table_of<HeadSoftmaxTable>(exec.isa);
  for_blocks(exec, row_blocks(y.rows(), y.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels::cpu
