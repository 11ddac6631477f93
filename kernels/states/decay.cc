#include "kernels/states/decay.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/decay.h"

namespace weft::kernels {

void decay_state(Exec& exec, const StateDecay& decay, ConstView state, View out) {
  const int64_t size = state.shape.elements();
  check_numbers(state, size, "decay_state: state");
  check_numbers(out, size, "decay_state: out");
  if (nothing_in(state)) return;
  const int64_t n = state.shape[0], times = decay.logs.shape.elements(),
                weights = decay.weights.shape.elements();
  check_numbers(decay.logs, times, "decay_state: logs");
  if (given(decay.weights)) {
    check_numbers(decay.weights, weights, "decay_state: weights");
    WEFT_CHECK(times % n == 0 && weights % (times / n) == 0,
               "decay_state: times {} for {} states and weights {}", decay.logs.shape, n,
               decay.weights.shape);
  }
  const int64_t factors = given(decay.weights) ? n * weights : times;
  WEFT_CHECK(factors > 0 && size % factors == 0, "decay_state: {} factors for a state {}", factors,
             state.shape);
  dispatch(exec,
           {.name = "decay_state",
            .flops = elements(state) + static_cast<double>(factors),
            .read = bytes_of(decay.logs, decay.weights, state),
            .written = bytes_of(out)},
           cpu::decay_state, decay, state, out);
}

void decay_state_sides(Exec& exec, ConstView rows, ConstView columns, ConstView state, View out) {
  const Shape& s = state.shape;
  WEFT_CHECK(s.dims() == 4, "decay_state_sides: a state {}", s);
  check_numbers(state, s.elements(), "decay_state_sides: state");
  check_numbers(out, s.elements(), "decay_state_sides: out");
  check_numbers(rows, s[0] * s[1] * s[2], "decay_state_sides: rows");
  check_numbers(columns, s[0] * s[1] * s[3], "decay_state_sides: columns");
  if (nothing_in(state)) return;
  dispatch(exec,
           {.name = "decay_state_sides",
            .flops = 3 * elements(state),
            .read = bytes_of(rows, columns, state),
            .written = bytes_of(out)},
           cpu::decay_state_sides, rows, columns, state, out);
}

void document_sums(Exec& exec, const DocumentSums& shape, std::span<const int32_t> documents,
                   ConstView x, View sums) {
  const auto n = static_cast<int64_t>(documents.size()) - 1;
  WEFT_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
             "document_sums: {} heads in {} groups", shape.heads, shape.kv_heads);
  check_f32_matrix(x, documents.back(), shape.kv_heads * shape.width, "document_sums: x");
  check_numbers(sums, n * shape.heads * shape.width, "document_sums: sums");
  if (nothing_in(sums)) return;
  dispatch(exec,
           {.name = "document_sums",
            .flops = elements(x),
            .read = bytes_of(x),
            .written = bytes_of(sums)},
           cpu::document_sums, shape, documents, x, sums);
}

void log_rates(Exec& exec, ConstView rates, ConstView log_dt, View logs) {
  const int64_t channels = rates.rows(), states = rates.width();
  check_numbers(rates, channels * states, "log_rates: rates");
  if (given(log_dt)) check_numbers(log_dt, channels, "log_rates: log_dt");
  check_numbers(logs, channels * states, "log_rates: logs");
  if (nothing_in(rates)) return;
  dispatch(exec,
           {.name = "log_rates",
            .flops = 3 * elements(rates),
            .read = bytes_of(rates, log_dt),
            .written = bytes_of(logs)},
           cpu::log_rates, rates, log_dt, logs);
}

}  // namespace weft::kernels
