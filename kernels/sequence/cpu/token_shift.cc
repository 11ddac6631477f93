#include "kernels/sequence/cpu/token_shift.h"

#include <vector>

#include "kernels/cpu/tasks.h"
#include "kernels/sequence/cpu/history.h"
#include "kernels/sequence/cpu/isa/token_shift.h"

namespace weft::kernels::cpu {
namespace {

// For every token: the number of the document that begins (ends) with it, or -1.
struct Borders {
  std::vector<int32_t> begins, ends;
};
Borders borders_in(std::span<const int32_t> documents, int64_t tokens) {
  const std::vector<int32_t> none(static_cast<size_t>(tokens), -1);
  Borders borders{none, none};
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    if (documents[d] == documents[d + 1]) continue;
    borders.begins[static_cast<size_t>(documents[d])] = static_cast<int32_t>(d);
    borders.ends[static_cast<size_t>(documents[d + 1]) - 1] = static_cast<int32_t>(d);
  }
  return borders;
}

TokenShiftArgs args_of(const TokenShift& shift, ConstView x, ConstView logits,
                       const Borders& borders) {
  TokenShiftArgs args{};
  args.x = rows_of(x);
  args.logits = host<float>(logits);
  args.logits_stride = logits.row_stride;
  args.begins = borders.begins.data();
  args.ends = borders.ends.data();
  args.heads = shift.heads;
  args.width = x.width() / shift.heads;
  return args;
}

HistoryShape history_of(const TokenShift& shift, ConstView x) {
  return {shift.documents, 1, x.width()};
}

}  // namespace

void token_shift_forward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits, View y,
                         const ShiftHistory& history) {
  const Borders borders = borders_in(shift.documents, x.rows());
  TokenShiftArgs args = args_of(shift, x, logits, borders);
  args.y = rows_of(y);
  args.entering = rows_of(history.entering);
  const TokenShiftTable& table = table_of<TokenShiftTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
  leave_history(exec, history_of(shift, x), history.entering, x, history.leaving);
}

void token_shift_backward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                          ConstView dy, View dx, View d_logits,
                          const ShiftHistoryGradients& history) {
  const Borders borders = borders_in(shift.documents, x.rows());
  TokenShiftArgs args = args_of(shift, x, logits, borders);
  args.dy = rows_of(dy);
  args.y = rows_of(dx);
  args.d_logits = host<float>(d_logits);
  args.d_logits_stride = d_logits.row_stride;
  args.entering = rows_of(history.entering);
  args.d_leaving = rows_of(history.d_leaving);
  const TokenShiftTable& table = table_of<TokenShiftTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
  if (nothing_in(history.d_entering)) return;
  args.d_entering = rows_of(history.d_entering);
  exec.threads.run(history_of(shift, x).count(), [&](int64_t d) {
    const bool empty = shift.documents[d] == shift.documents[d + 1];
    table.history_backward(args, d, empty ? -1 : shift.documents[d]);
  });
}

}  // namespace weft::kernels::cpu
