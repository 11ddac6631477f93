#include "kernels/scan/momentum_scan.h"

#include "kernels/scan/cpu/momentum_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

int64_t keys(const MomentumScan& in) { return in.heads * in.key; }
int64_t values(const MomentumScan& in) { return in.heads * in.value; }
int64_t heads(const MomentumScan& in) { return in.heads; }
constexpr ScanField<MomentumScan> kFields[] = {
    {"q", &MomentumScan::q, &MomentumScanGradients::dq, keys, FieldType::kReal},
    {"k", &MomentumScan::k, &MomentumScanGradients::dk, keys, FieldType::kReal},
    {"v", &MomentumScan::v, &MomentumScanGradients::dv, values, FieldType::kReal},
    {"theta", &MomentumScan::theta, &MomentumScanGradients::d_theta, heads, FieldType::kF32},
    {"alpha", &MomentumScan::alpha, &MomentumScanGradients::d_alpha, heads, FieldType::kF32,
     Presence::kOptional},
    {"eta", &MomentumScan::eta, &MomentumScanGradients::d_eta, heads, FieldType::kF32,
     Presence::kOptional},
};

template <class States>
void check_states(const MomentumScan& in, const States& states, const char* name) {
  for (const ConstView& state :
       {ConstView(states.m), ConstView(states.s), ConstView(states.anchor)})
    check_state(in.kName, name, state, documents_of(in) * in.heads * in.key * in.value);
}

void check_output(const MomentumScan& in, const char* name, ConstView x) {
  check_field({in.kName, "", name, in.q.rows(), values(in), FieldType::kReal, FieldRows::kTokens,
               in.q.dtype},
              x);
}

void check_scan(const MomentumScan& in) {
  check_inputs(in);
  WEFT_CHECK(in.mini_batch > 0, "momentum_scan: mini-batches of {}", in.mini_batch);
  WEFT_CHECK(in.documents.size() == in.before.size() + 1,
             "momentum_scan: {} offsets of documents, {} beginnings", in.documents.size(),
             in.before.size());
}

template <class States>
int64_t bytes_of_states(const States& s) {
  return bytes_of(s.m, s.s, s.anchor);
}

// As for the delta rule; with momentum there is a second state, and every read is of two.
ScanFlops flops_of(const MomentumScan& in) {
  const auto k = static_cast<double>(in.key), v = static_cast<double>(in.value);
  const double states = (given(in.eta) ? 2 : 1) * k * v;
  constexpr double c = kCountedChunk;
  return {.forward = c * (2 * k + 2 * v) + 6 * states,
          .states_alone = c * (k + v) + 4 * states,
          .scores = c * k};
}

}  // namespace

std::span<const ScanField<MomentumScan>> MomentumScan::fields() { return kFields; }

int64_t momentum_scan_kept(Exec& exec, const MomentumScan& in) {
  check_scan(in);
  int64_t floats = 0;
  dispatch(exec, {.name = "momentum_scan_kept", .over = Over::kIndices}, cpu::momentum_scan_kept,
           in, floats);
  return floats;
}

void momentum_scan_forward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                           View out, const MomentumStatesOut& leaving, View kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, leaving, "a leaving state");
  if (given(out)) check_output(in, "out", out);
  dispatch(exec,
           forward_call("momentum_scan_forward", in, flops_of(in), bytes_of_states(entering), out,
                        bytes_of_states(leaving) + bytes_of(kept)),
           cpu::momentum_scan_forward, in, entering, out, leaving, kept);
}

void momentum_scan_backward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                            ConstView d_out, const MomentumStates& d_leaving,
                            const MomentumScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, d_leaving, "the gradient of a leaving state");
  check_states(in, gradients.entering, "the gradient of an entering state");
  check_output(in, "d_out", d_out);
  check_gradients(in, gradients);
  dispatch(exec,
           backward_call("momentum_scan_backward", in, flops_of(in),
                         bytes_of_states(entering) + bytes_of_states(d_leaving), d_out, gradients,
                         bytes_of_states(gradients.entering), kept),
           cpu::momentum_scan_backward, in, entering, d_out, d_leaving, gradients, kept);
}

}  // namespace weft::kernels
