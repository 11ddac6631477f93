#include "kernels/sequence/token_shift.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/sequence/cpu/token_shift.h"
#include "kernels/sequence/history.h"

namespace weft::kernels {
namespace {

HistoryShape check(const TokenShift& shift, ConstView x, ConstView logits) {
  check_real(x, "token_shift: x");
  check_heads(x.width(), shift.heads, "token_shift");
  check_f32_matrix(logits, x.rows(), shift.heads, "token_shift: logits");
  check_documents(shift.documents, x.rows(), "token_shift");
  return {shift.documents, 1, x.width()};
}

void check_like(ConstView x, ConstView other, std::string_view name) {
  check_matrix(other, x.rows(), x.width(), name);
  WEFT_CHECK(other.dtype == x.dtype, "{} is {}, x is {}", name, name_of(other.dtype),
             name_of(x.dtype));
}

}  // namespace

void token_shift_forward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits, View y,
                         const ShiftHistory& history) {
  if (nothing_in(x) && !given(history.leaving)) return;
  const HistoryShape shape = check(shift, x, logits);
  check_history(history.entering, shape, "token_shift: history");
  check_history(history.leaving, shape, "token_shift: leaving history");
  check_like(x, y, "token_shift: y");
  dispatch(exec,
           {.name = "token_shift_forward",
            .type = x.dtype,
            .flops = 3 * elements(x) + 4 * elements(logits),
            .read = bytes_of(x, logits, history.entering),
            .written = bytes_of(y, history.leaving)},
           cpu::token_shift_forward, shift, x, logits, y, history);
}

void token_shift_backward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                          ConstView dy, View dx, View d_logits,
                          const ShiftHistoryGradients& history) {
  if (nothing_in(x) && !given(history.d_entering)) return;
  const HistoryShape shape = check(shift, x, logits);
  check_history(history.entering, shape, "token_shift: history");
  check_history(history.d_leaving, shape, "token_shift: d_leaving");
  check_history(history.d_entering, shape, "token_shift: d_entering");
  check_like(x, dy, "token_shift: dy");
  check_like(x, dx, "token_shift: dx");
  check_f32_matrix(d_logits, x.rows(), shift.heads, "token_shift: d_logits");
  WEFT_CHECK(dx.data != dy.data || x.rows() == 0, "token_shift: dx must not overwrite dy");
  dispatch(exec,
           {.name = "token_shift_backward",
            .type = x.dtype,
            .flops = 6 * elements(x) + 6 * elements(logits),
            .read = bytes_of(x, logits, dy, history.entering, history.d_leaving),
            .written = bytes_of(dx, d_logits, history.d_entering)},
           cpu::token_shift_backward, shift, x, logits, dy, dx, d_logits, history);
}

}  // namespace weft::kernels
