#include "kernels/routing/cpu/mixture.h"

#include "kernels/cpu/tasks.h"
#include "kernels/routing/cpu/isa/mixture.h"

namespace weft::kernels::cpu {

void mix_rows_forward(Exec& exec, ConstView row, ConstView rows, ConstView weight, View y) {
  const MixRowsArgs args{.row = host<int32_t>(row),
                         .weight = host<float>(weight),
                         .rows = rows_of(rows),
                         .active = row.width(),
                         .width = y.width(),
                         .y = rows_of(y)};
  const MixRowsTable& table = table_of<MixRowsTable>(exec.isa);
  for_blocks(exec, row_blocks(y.rows(), args.active * args.width),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void mix_rows_backward(Exec& exec, ConstView row, const MixRowsBackward& in) {
  const MixRowsArgs args{.row = host<int32_t>(row),
                         .weight = host<float>(in.weight),
                         .rows = rows_of(in.rows),
                         .active = row.width(),
                         .width = in.dy.width(),
                         .dy = rows_of(in.dy),
                         .y = rows_of(in.d_rows),
                         .d_weight = host<float>(in.d_weight)};
  const MixRowsTable& table = table_of<MixRowsTable>(exec.isa);
  for_blocks(exec, row_blocks(in.dy.rows(), args.active * args.width),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels::cpu
