#include "kernels/states/mlstm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/mlstm.h"

namespace weft::kernels {
namespace {

template <class State>
void check_mlstm(const State& state, const Shape& s, std::string_view name) {
  const int64_t heads = s[0] * s[1];
  check_numbers(state.c, heads * s[2] * s[3], name);
  check_numbers(state.n, heads * s[2], name);
  check_numbers(state.m, heads, name);
}

// Checks a wide state against the shapes of its parts.
void check_wide(ConstView wide, ConstView c, ConstView n, std::string_view name) {
  WEFT_CHECK(c.shape.dims() == 4, "{}: C {}", name, c.shape);
  check_numbers(c, c.shape.elements(), name);
  check_numbers(n, c.shape.elements() / c.width(), name);
  check_numbers(wide, c.shape.elements() + n.shape.elements(), name);
}

template <class State>
int64_t bytes_of_state(const State& state) {
  return bytes_of(state.c, state.n, state.m);
}

}  // namespace

void mlstm_apply(Exec& exec, ConstView b, const MlstmState& span, const MlstmState& entering,
                 const MlstmStateOut& leaving) {
  const Shape& s = entering.c.shape;
  WEFT_CHECK(s.dims() == 4, "mlstm_apply: C {}", s);
  check_mlstm(span, s, "mlstm_apply: span");
  check_mlstm(entering, s, "mlstm_apply: entering");
  check_mlstm(leaving, s, "mlstm_apply: leaving");
  check_numbers(b, s[0] * s[1], "mlstm_apply: b");
  if (nothing_in(entering.m)) return;
  dispatch(exec,
           {.name = "mlstm_apply",
            .flops = 3 * (elements(leaving.c) + elements(leaving.n)),
            .read = bytes_of_state(span) + bytes_of_state(entering),
            .written = bytes_of_state(leaving)},
           cpu::mlstm_apply, b, span, entering, leaving);
}

void mlstm_apply_adjoint(Exec& exec, ConstView b, const MlstmState& span,
                         const MlstmState& entering, const MlstmState& d_leaving,
                         const MlstmStateOut& d_entering) {
  const Shape& s = entering.c.shape;
  WEFT_CHECK(s.dims() == 4, "mlstm_apply_adjoint: C {}", s);
  check_mlstm(span, s, "mlstm_apply_adjoint: span");
  check_mlstm(entering, s, "mlstm_apply_adjoint: entering");
  check_mlstm(d_leaving, s, "mlstm_apply_adjoint: d_leaving");
  check_mlstm(d_entering, s, "mlstm_apply_adjoint: d_entering");
  check_numbers(b, s[0] * s[1], "mlstm_apply_adjoint: b");
  if (nothing_in(entering.m)) return;
  dispatch(exec,
           {.name = "mlstm_apply_adjoint",
            .flops = 3 * (elements(entering.c) + elements(entering.n)),
            .read = bytes_of_state(d_leaving) + bytes_of_state(entering),
            .written = bytes_of_state(d_entering)},
           cpu::mlstm_apply_adjoint, b, span, entering, d_leaving, d_entering);
}

void mlstm_widen(Exec& exec, const MlstmState& state, View wide) {
  check_wide(wide, state.c, state.n, "mlstm_widen");
  check_mlstm(state, state.c.shape, "mlstm_widen: state");
  if (nothing_in(wide)) return;
  dispatch(exec,
           {.name = "mlstm_widen",
            .flops = elements(wide),
            .read = bytes_of_state(state),
            .written = bytes_of(wide)},
           cpu::mlstm_widen, state, wide);
}

void mlstm_widen_backward(Exec& exec, ConstView wide, ConstView m, ConstView d_wide,
                          const MlstmStateOut& d) {
  check_wide(d_wide, d.c, d.n, "mlstm_widen_backward");
  check_mlstm(d, d.c.shape, "mlstm_widen_backward: d");
  WEFT_CHECK(given(wide) == given(m), "mlstm_widen_backward: m and wide are given together");
  if (given(wide)) {
    check_wide(wide, d.c, d.n, "mlstm_widen_backward");
    check_numbers(m, d.m.shape.elements(), "mlstm_widen_backward: m");
  }
  if (nothing_in(d_wide)) return;
  dispatch(exec,
           {.name = "mlstm_widen_backward",
            .flops = 3 * elements(d_wide),
            .read = bytes_of(wide, m, d_wide),
            .written = bytes_of_state(d)},
           cpu::mlstm_widen_backward, wide, m, d_wide, d);
}

void mlstm_stabilise(Exec& exec, ConstView wide, ConstView rest, ConstView m, View c, View n) {
  check_wide(wide, c, n, "mlstm_stabilise");
  check_mlstm(MlstmState{c, n, rest}, c.shape, "mlstm_stabilise: rest");
  check_mlstm(MlstmState{c, n, m}, c.shape, "mlstm_stabilise: m");
  if (nothing_in(wide)) return;
  dispatch(exec,
           {.name = "mlstm_stabilise",
            .flops = elements(wide),
            .read = bytes_of(wide, rest, m),
            .written = bytes_of(c, n)},
           cpu::mlstm_stabilise, wide, rest, m, c, n);
}

void mlstm_stabilise_backward(Exec& exec, ConstView wide, ConstView rest, ConstView m,
                              const MlstmState& d, const MlstmWideGradient& out) {
  check_wide(wide, d.c, d.n, "mlstm_stabilise_backward: wide");
  check_wide(out.wide, d.c, d.n, "mlstm_stabilise_backward: d_wide");
  for (const ConstView& one : {rest, m, d.m, ConstView(out.rest), ConstView(out.m)}) {
    check_numbers(one, d.c.shape[0] * d.c.shape[1], "mlstm_stabilise_backward: rest and m");
  }
  if (nothing_in(wide)) return;
  dispatch(exec,
           {.name = "mlstm_stabilise_backward",
            .flops = 3 * elements(wide),
            .read = bytes_of(wide, rest, m) + bytes_of_state(d),
            .written = bytes_of(out.wide, out.rest, out.m)},
           cpu::mlstm_stabilise_backward, wide, rest, m, d, out);
}

void last_rows(Exec& exec, std::span<const int32_t> documents, ConstView rows, ConstView entering,
               View last) {
  const auto n = static_cast<int64_t>(documents.size()) - 1;
  check_f32_matrix(rows, documents.back(), last.width(), "last_rows: rows");
  check_numbers(last, n * rows.width(), "last_rows: last");
  if (given(entering)) check_numbers(entering, n * rows.width(), "last_rows: entering");
  if (nothing_in(last)) return;
  dispatch(exec, {.name = "last_rows", .read = bytes_of(last, entering), .written = bytes_of(last)},
           cpu::last_rows, documents, rows, entering, last);
}

}  // namespace weft::kernels
