#include "kernels/states/select.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/select.h"

namespace weft::kernels {

void pick_states(Exec& exec, ConstView from, ConstView index, ConstView otherwise, View to) {
  const int64_t size = to.shape.elements();
  check_numbers(to, size, "pick_states: to");
  if (nothing_in(to)) return;
  check_vector<int32_t>(index, to.shape[0], "pick_states: index");
  WEFT_CHECK(from.shape.dims() > 0 && from.shape[0] * (size / to.shape[0]) == from.shape.elements(),
             "pick_states: from {} to {}", from.shape, to.shape);
  check_numbers(from, from.shape.elements(), "pick_states: from");
  if (given(otherwise)) check_numbers(otherwise, size, "pick_states: otherwise");
  dispatch(exec, {.name = "pick_states", .read = bytes_of(index, to), .written = bytes_of(to)},
           cpu::pick_states, from, index, otherwise, to);
}

void pass_states(Exec& exec, ConstView passes, ConstView state, ConstView otherwise, View to) {
  const int64_t size = to.shape.elements();
  check_numbers(to, size, "pass_states: to");
  if (nothing_in(to)) return;
  check_numbers(passes, to.shape[0], "pass_states: passes");
  check_numbers(state, size, "pass_states: state");
  if (given(otherwise)) check_numbers(otherwise, size, "pass_states: otherwise");
  dispatch(exec, {.name = "pass_states", .read = bytes_of(passes, to), .written = bytes_of(to)},
           cpu::pass_states, passes, state, otherwise, to);
}

}  // namespace weft::kernels
