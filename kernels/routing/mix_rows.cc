#include "kernels/routing/mix_rows.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/routing/cpu/isa/mix_rows.h"

namespace weft::kernels {
namespace {

MixRowsArgs checked(const ExpertOrder& order, ConstView rows, ConstView weight, ConstView y) {
  const int64_t tokens = order.row.shape().rows(), active = order.row.shape().back();
  WEFT_CHECK(order.token.elements() == tokens * active, "mix_rows: {} rows for {} pairs",
             order.token.elements(), tokens * active);
  check_matrix(rows, tokens * active, y.width(), "mix_rows: rows");
  check_matrix(y, tokens, y.width(), "mix_rows: y");
  return {.row = host<int32_t>(order.row),
          .weight = vector_of<float>(weight, tokens * active, "mix_rows: weight"),
          .rows = rows_of(rows),
          .active = active,
          .width = y.width()};
}

}  // namespace

void mix_rows_forward(Exec& exec, const ExpertOrder& order, ConstView rows, ConstView weight,
                      View y) {
  if (nothing_in(y)) return;
  MixRowsArgs args = checked(order, rows, weight, y);
  args.y = rows_of(y);
  const MixRowsTable& table = table_of<MixRowsTable>(exec.isa);
  for_blocks(exec, row_blocks(y.rows(), args.active * args.width),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void mix_rows_backward(Exec& exec, const ExpertOrder& order, const MixRowsBackward& in) {
  if (nothing_in(in.dy)) return;
  MixRowsArgs args = checked(order, in.rows, in.weight, in.dy);
  check_matrix(in.d_rows, in.rows.rows(), args.width, "mix_rows: d_rows");
  args.dy = rows_of(in.dy);
  args.y = rows_of(in.d_rows);
  args.d_weight = vector_of<float>(in.d_weight, in.rows.rows(), "mix_rows: d_weight");
  const MixRowsTable& table = table_of<MixRowsTable>(exec.isa);
  for_blocks(exec, row_blocks(in.dy.rows(), args.active * args.width),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels
