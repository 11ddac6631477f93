#include "kernels/scan/scalar_scan.h"

#include "kernels/scan/cpu/scalar_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

int64_t queries(const ScalarScan& in) { return heads_of(in).q * in.key; }
int64_t keys(const ScalarScan& in) { return heads_of(in).k * in.key; }
int64_t values(const ScalarScan& in) { return heads_of(in).v * in.value; }
int64_t heads(const ScalarScan& in) { return in.heads; }
constexpr ScanField<ScalarScan> kFields[] = {
    {"q", &ScalarScan::q, &ScalarScanGradients::dq, queries},
    {"k", &ScalarScan::k, &ScalarScanGradients::dk, keys},
    {"v", &ScalarScan::v, &ScalarScanGradients::dv, values},
    {"log_decay", &ScalarScan::log_decay, &ScalarScanGradients::d_log_decay, heads, FieldType::kF32,
     Presence::kOptionalWithGradient, FieldRows::kTokensOrOne},
};

void check_scan(const ScalarScan& in) {
  check_head_counts(in.kName, in.heads, heads_of(in).q, in.key, in.value);
  check_head_counts(in.kName, in.heads, heads_of(in).v, in.key, in.value);
  check_inputs(in);
}

// Scores and their products with the values, half of a square each; the state read and written.
ScanFlops flops_of(const ScalarScan& in) {
  const auto k = static_cast<double>(in.key), v = static_cast<double>(in.value);
  constexpr double c = kCountedChunk;
  return {.forward = c * (k + v) + 4 * k * v, .states_alone = 2 * k * v, .scores = c * k};
}

}  // namespace

ScalarHeads heads_of(const ScalarScan& in) {
  if (in.qk_heads > 0) return {in.qk_heads, in.qk_heads, in.heads};
  return {in.heads, in.kv_heads, in.kv_heads};
}

std::span<const ScanField<ScalarScan>> ScalarScan::fields() { return kFields; }

int64_t scalar_scan_kept(Exec& exec, const ScalarScan& in) {
  check_scan(in);
  int64_t floats = 0;
  dispatch(exec, {.name = "scalar_scan_kept", .over = Over::kIndices}, cpu::scalar_scan_kept, in,
           floats);
  return floats;
}

void scalar_scan_forward(Exec& exec, const ScalarScan& in, ConstView initial_state, View out,
                         View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  check_head_output(in, "out", out);
  dispatch(exec,
           forward_call("scalar_scan_forward", in, flops_of(in), bytes_of(initial_state), out,
                        bytes_of(final_state, kept)),
           cpu::scalar_scan_forward, in, initial_state, out, final_state, kept);
}

void scalar_scan_backward(Exec& exec, const ScalarScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const ScalarScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);
  dispatch(exec,
           backward_call("scalar_scan_backward", in, flops_of(in),
                         bytes_of(initial_state, d_final_state), d_out, gradients,
                         bytes_of(gradients.d_initial_state), kept),
           cpu::scalar_scan_backward, in, initial_state, d_out, d_final_state, gradients, kept);
}

void scalar_scan_summary(Exec& exec, const ScalarScan& in, View update, View total) {
  check_scan(in);
  check_head_state(in, "update", update);
  if (given(total)) {
    check_numbers(total, documents_of(in) * in.heads, "scalar_scan: total");
  }
  dispatch(exec,
           forward_call("scalar_scan_summary", in, flops_of(in), 0, {}, bytes_of(update, total)),
           cpu::scalar_scan_summary, in, update, total);
}

void scalar_scan_state_gradient(Exec& exec, const ScalarScan& in, ConstView d_out,
                                View d_initial_state) {
  check_scan(in);
  check_head_state(in, "d_initial_state", d_initial_state);
  check_head_output(in, "d_out", d_out);
  dispatch(exec,
           {.name = "scalar_scan_state_gradient",
            .type = in.q.dtype,
            .flops = flops_of(in).states_alone * static_cast<double>(in.q.rows() * in.heads),
            .read = bytes_of(in.q, in.log_decay, d_out),
            .written = bytes_of(d_initial_state)},
           cpu::scalar_scan_state_gradient, in, d_out, d_initial_state);
}

}  // namespace weft::kernels
