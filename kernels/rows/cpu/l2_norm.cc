#include "kernels/rows/cpu/l2_norm.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/l2_norm.h"

namespace weft::kernels::cpu {

void l2_norm_forward(Exec& exec, const L2Norm& norm, ConstView x, View y, View inv_norm) {
  const L2Forward args{
      rows_of(x),  rows_of(y), host<float>(inv_norm), norm.heads, x.width() / norm.heads,
      norm.epsilon};
  const L2Table& table = table_of<L2Table>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void l2_norm_backward(Exec& exec, const L2Norm& norm, ConstView dy, ConstView y, ConstView inv_norm,
                      View dx) {
  const L2Backward args{rows_of(dy),           rows_of(y), rows_of(dx),
                        host<float>(inv_norm), norm.heads, dy.width() / norm.heads};
  const L2Table& table = table_of<L2Table>(exec.isa);
  for_blocks(exec, row_blocks(dy.rows(), dy.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels::cpu
