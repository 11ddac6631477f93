#include "kernels/scan/delta_scan.h"

#include "kernels/scan/cpu/delta_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

int64_t keys(const DeltaScan& in) { return in.qk_heads * in.key; }
int64_t values(const DeltaScan& in) { return in.heads * in.value; }
int64_t heads(const DeltaScan& in) { return in.heads; }
constexpr ScanField<DeltaScan> kFields[] = {
    {"q", &DeltaScan::q, &DeltaScanGradients::dq, keys},
    {"k", &DeltaScan::k, &DeltaScanGradients::dk, keys},
    {"v", &DeltaScan::v, &DeltaScanGradients::dv, values},
    {"beta", &DeltaScan::beta, &DeltaScanGradients::d_beta, heads, FieldType::kF32},
    {"log_decay", &DeltaScan::log_decay, &DeltaScanGradients::d_log_decay, heads, FieldType::kF32,
     Presence::kOptional},
};

void check_scan(const DeltaScan& in) {
  check_head_counts(in.kName, in.heads, in.qk_heads, in.key, in.value);
  check_inputs(in);
}

// Scores of keys and of queries with keys, the triangular system, both with the values, and the
// state read by keys and queries and written once.
ScanFlops flops_of(const DeltaScan& in) {
  const auto k = static_cast<double>(in.key), v = static_cast<double>(in.value);
  constexpr double c = kCountedChunk;
  return {.forward = c * (2 * k + 2 * v + c / 3) + 6 * k * v,
          .states_alone = c * (k + v + c / 3) + 4 * k * v,
          .scores = c * k};
}

}  // namespace

std::span<const ScanField<DeltaScan>> DeltaScan::fields() { return kFields; }

int64_t delta_scan_kept(Exec& exec, const DeltaScan& in) {
  check_scan(in);
  int64_t floats = 0;
  dispatch(exec, {.name = "delta_scan_kept", .over = Over::kIndices}, cpu::delta_scan_kept, in,
           floats);
  return floats;
}

void delta_scan_forward(Exec& exec, const DeltaScan& in, ConstView initial_state, View out,
                        View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  if (given(out)) check_head_output(in, "out", out);
  dispatch(exec,
           forward_call("delta_scan_forward", in, flops_of(in), bytes_of(initial_state), out,
                        bytes_of(final_state, kept)),
           cpu::delta_scan_forward, in, initial_state, out, final_state, kept);
}

void delta_scan_backward(Exec& exec, const DeltaScan& in, ConstView initial_state, ConstView d_out,
                         ConstView d_final_state, const DeltaScanGradients& gradients,
                         ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);
  dispatch(
      exec,
      backward_call("delta_scan_backward", in, flops_of(in), bytes_of(initial_state, d_final_state),
                    d_out, gradients, bytes_of(gradients.d_initial_state), kept),
      cpu::delta_scan_backward, in, initial_state, d_out, d_final_state, gradients, kept);
}

}  // namespace weft::kernels
