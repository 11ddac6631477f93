#include "kernels/states/turn.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/turn.h"

namespace weft::kernels {

void turn_state(Exec& exec, ConstView factors, Turn turn, ConstView state, View out) {
  const int64_t size = state.shape.elements();
  check_numbers(state, size, "turn_state: state");
  check_numbers(out, size, "turn_state: out");
  if (nothing_in(state)) return;
  check_numbers(factors, size / state.width(), "turn_state: factors");
  WEFT_CHECK(factors.shape.dims() == 4 && factors.shape[2] == 2, "turn_state: factors {}",
             factors.shape);
  dispatch(exec,
           {.name = "turn_state",
            .flops = 3 * elements(state),
            .read = bytes_of(factors, state),
            .written = bytes_of(out)},
           cpu::turn_state, factors, turn, state, out);
}

void conjugate_state(Exec& exec, ConstView state, View out) {
  const int64_t size = state.shape.elements();
  check_numbers(state, size, "conjugate_state: state");
  check_numbers(out, size, "conjugate_state: out");
  WEFT_CHECK(state.shape.dims() >= 3, "conjugate_state: state {}", state.shape);
  if (nothing_in(state)) return;
  dispatch(exec,
           {.name = "conjugate_state",
            .flops = elements(state) / 2,
            .read = bytes_of(state),
            .written = bytes_of(out)},
           cpu::conjugate_state, state, out);
}

void last_turns(Exec& exec, std::span<const int32_t> documents, ConstView phase, ConstView g,
                View turns) {
  const auto n = static_cast<int64_t>(documents.size()) - 1;
  WEFT_CHECK(turns.shape.dims() == 4 && turns.shape[0] == n && turns.shape[2] == 2,
             "last_turns: turns {} of {} documents", turns.shape, n);
  const int64_t width = turns.shape[1] * turns.shape[3];
  check_numbers(turns, n * 2 * width, "last_turns: turns");
  check_numbers(phase, documents.back() * width, "last_turns: phase");
  if (given(g)) check_numbers(g, n * width, "last_turns: g");
  if (nothing_in(turns)) return;
  dispatch(exec,
           {.name = "last_turns",
            .flops = 3 * elements(turns),
            .read = bytes_of(turns, g),
            .written = bytes_of(turns)},
           cpu::last_turns, documents, phase, g, turns);
}

void turn_gradient(Exec& exec, ConstView state, ConstView d_state, View d_angle) {
  const int64_t size = state.shape.elements();
  WEFT_CHECK(state.shape.dims() == 5 && state.shape[2] == 2, "turn_gradient: state {}",
             state.shape);
  check_numbers(state, size, "turn_gradient: state");
  check_numbers(d_state, size, "turn_gradient: d_state");
  if (nothing_in(state)) return;
  check_numbers(d_angle, size / 2 / state.width(), "turn_gradient: d_angle");
  dispatch(exec,
           {.name = "turn_gradient",
            .flops = 2 * elements(state),
            .read = bytes_of(state, d_state),
            .written = bytes_of(d_angle)},
           cpu::turn_gradient, state, d_state, d_angle);
}

}  // namespace weft::kernels
