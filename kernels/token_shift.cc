#include "kernels/token_shift.h"

#include <vector>

#include "kernels/cpu/token_shift.h"
#include "kernels/launch.h"

namespace weft::kernels {
namespace {

const TokenShiftTable& table_of(Isa isa) {
  return by_isa(isa, [](auto tag) -> const TokenShiftTable& { return token_shift_table(tag); });
}

// 1 for every token that begins a document, and for the end.
std::vector<uint8_t> begins_in(std::span<const int32_t> documents, int64_t tokens) {
  WEFT_CHECK(!documents.empty() && documents.front() == 0 && documents.back() == tokens,
             "token_shift: document offsets must go from 0 to {} tokens", tokens);
  std::vector<uint8_t> begins(static_cast<size_t>(tokens) + 1);
  for (const int32_t offset : documents) begins[static_cast<size_t>(offset)] = 1;
  return begins;
}

TokenShiftArgs checked(const TokenShift& shift, ConstView x, ConstView logits,
                       const std::vector<uint8_t>& begins) {
  check_real(x, "token_shift: x");
  WEFT_CHECK(shift.heads > 0 && x.width() % shift.heads == 0, "token_shift: {} channels, {} heads",
             x.width(), shift.heads);
  check_matrix(logits, x.rows(), shift.heads, "token_shift: logits");
  TokenShiftArgs args{};
  args.x = rows_of(x);
  args.logits = logits.as<float>();
  args.logits_stride = logits.row_stride;
  args.begins = begins.data();
  args.heads = shift.heads;
  args.width = x.width() / shift.heads;
  return args;
}

void check_like(ConstView x, ConstView other, std::string_view name) {
  check_matrix(other, x.rows(), x.width(), name);
  WEFT_CHECK(other.dtype == x.dtype, "{} is {}, x is {}", name, name_of(other.dtype),
             name_of(x.dtype));
}

}  // namespace

void token_shift_forward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits, View y,
                         const ShiftHistory& history) {
  WEFT_CHECK(!given(history.entering) && !given(history.leaving), "token_shift: no histories yet");
  if (nothing_in(x)) return;
  const std::vector<uint8_t> begins = begins_in(shift.documents, x.rows());
  TokenShiftArgs args = checked(shift, x, logits, begins);
  check_like(x, y, "token_shift: y");
  args.y = rows_of(y);
  const TokenShiftTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void token_shift_backward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                          ConstView dy, View dx, View d_logits,
                          const ShiftHistoryGradients& history) {
  WEFT_CHECK(!given(history.entering) && !given(history.d_leaving) && !given(history.d_entering),
             "token_shift: no histories yet");
  if (nothing_in(x)) return;
  const std::vector<uint8_t> begins = begins_in(shift.documents, x.rows());
  TokenShiftArgs args = checked(shift, x, logits, begins);
  check_like(x, dy, "token_shift: dy");
  check_like(x, dx, "token_shift: dx");
  check_matrix(d_logits, x.rows(), shift.heads, "token_shift: d_logits");
  WEFT_CHECK(dx.data != dy.data, "token_shift: dx must not overwrite dy");
  args.dy = rows_of(dy);
  args.y = rows_of(dx);
  args.d_logits = d_logits.as<float>();
  args.d_logits_stride = d_logits.row_stride;
  const TokenShiftTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels
