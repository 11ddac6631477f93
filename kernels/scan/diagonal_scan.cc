#include "kernels/scan/diagonal_scan.h"

#include "kernels/scan/cpu/diagonal_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

int64_t queries(const DiagonalScan& in) { return in.heads * in.key; }
int64_t keys(const DiagonalScan& in) { return in.kv_heads * in.key; }
int64_t values(const DiagonalScan& in) { return in.kv_heads * in.value; }
constexpr ScanField<DiagonalScan> kFields[] = {
    {"q", &DiagonalScan::q, &DiagonalScanGradients::dq, queries},
    {"k", &DiagonalScan::k, &DiagonalScanGradients::dk, keys},
    {"v", &DiagonalScan::v, &DiagonalScanGradients::dv, values},
    {"log_decay", &DiagonalScan::log_decay, &DiagonalScanGradients::d_log_decay, keys,
     FieldType::kF32, Presence::kOptional},
    {"bonus", &DiagonalScan::bonus, &DiagonalScanGradients::d_bonus, queries, FieldType::kF32,
     Presence::kOptional, FieldRows::kNone},
    {"value_log_decay", &DiagonalScan::value_log_decay, &DiagonalScanGradients::d_value_log_decay,
     values, FieldType::kF32, Presence::kOptional},
};

void check_scan(const DiagonalScan& in) {
  check_head_counts(in.kName, in.heads, in.kv_heads, in.key, in.value);
  check_inputs(in);
  if (in.q.rows() == 0) return;  // decays may be missing then
  const bool two_sided = given(in.value_log_decay);
  WEFT_CHECK(two_sided || given(in.log_decay), "diagonal_scan: no decays are given");
  WEFT_CHECK(!two_sided || !given(in.bonus),
             "diagonal_scan: a bonus with decays of value channels");
}

// Scores and their products with the values, half of a square each; the state read and written.
ScanFlops flops_of(const DiagonalScan& in) {
  const auto k = static_cast<double>(in.key), v = static_cast<double>(in.value);
  constexpr double c = kCountedChunk;
  return {.forward = c * (k + v) + 4 * k * v, .states_alone = 2 * k * v, .scores = c * k};
}

}  // namespace

std::span<const ScanField<DiagonalScan>> DiagonalScan::fields() { return kFields; }

int64_t diagonal_scan_kept(Exec& exec, const DiagonalScan& in) {
  check_scan(in);
  int64_t floats = 0;
  dispatch(exec, {.name = "diagonal_scan_kept", .over = Over::kIndices}, cpu::diagonal_scan_kept,
           in, floats);
  return floats;
}

void diagonal_scan_forward(Exec& exec, const DiagonalScan& in, ConstView initial_state, View out,
                           View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  if (given(out)) check_head_output(in, "out", out);
  dispatch(exec,
           forward_call("diagonal_scan_forward", in, flops_of(in), bytes_of(initial_state), out,
                        bytes_of(final_state, kept)),
           cpu::diagonal_scan_forward, in, initial_state, out, final_state, kept);
}

void diagonal_scan_backward(Exec& exec, const DiagonalScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const DiagonalScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);
  dispatch(exec,
           backward_call("diagonal_scan_backward", in, flops_of(in),
                         bytes_of(initial_state, d_final_state), d_out, gradients,
                         bytes_of(gradients.d_initial_state), kept),
           cpu::diagonal_scan_backward, in, initial_state, d_out, d_final_state, gradients, kept);
}

}  // namespace weft::kernels
