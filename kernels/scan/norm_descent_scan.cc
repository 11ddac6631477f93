#include "kernels/scan/norm_descent_scan.h"

#include "kernels/scan/cpu/norm_descent_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

int64_t width(const NormDescentScan& in) { return in.heads * in.width; }
int64_t heads(const NormDescentScan& in) { return in.heads; }
constexpr ScanField<NormDescentScan> kFields[] = {
    {"q", &NormDescentScan::q, &NormDescentGradients::dq, width, FieldType::kReal},
    {"k", &NormDescentScan::k, &NormDescentGradients::dk, width, FieldType::kReal},
    {"v", &NormDescentScan::v, &NormDescentGradients::dv, width, FieldType::kReal},
    {"eta", &NormDescentScan::eta, &NormDescentGradients::d_eta, heads, FieldType::kF32},
    {"w", &NormDescentScan::w, &NormDescentGradients::d_w, width, FieldType::kF32,
     Presence::kAlways, FieldRows::kNone},
    {"c", &NormDescentScan::c, &NormDescentGradients::d_c, width, FieldType::kF32,
     Presence::kAlways, FieldRows::kNone},
};

template <class States>
void check_states(const NormDescentScan& in, const States& states, const char* name) {
  const int64_t rows = documents_of(in) * width(in);
  check_state(in.kName, name, states.m, rows * in.width);
  check_state(in.kName, name, states.n, rows);
  check_state(in.kName, name, states.anchor_m, rows * in.width);
  check_state(in.kName, name, states.anchor_n, rows);
  WEFT_CHECK(given(states.m) == given(states.n) && given(states.anchor_m) == given(states.anchor_n),
             "norm_descent_scan: {} has one half only", name);
}

void check_output(const NormDescentScan& in, const char* name, ConstView x) {
  check_field({in.kName, "", name, in.q.rows(), width(in), FieldType::kReal, FieldRows::kTokens,
               in.q.dtype},
              x);
}

void check_scan(const NormDescentScan& in) {
  check_inputs(in);
  WEFT_CHECK(in.mini_batch > 0, "norm_descent_scan: mini-batches of {}", in.mini_batch);
  WEFT_CHECK(in.documents.size() == in.before.size() + 1,
             "norm_descent_scan: {} offsets of documents, {} beginnings", in.documents.size(),
             in.before.size());
}

template <class States>
int64_t bytes_of_states(const States& s) {
  return bytes_of(s.m, s.n, s.anchor_m, s.anchor_n);
}

// Per mini-batch: the anchor and the state read, the state written, scores and their products with
// the updates, half of a square each; LayerNorm and its derivative, some 30 per channel.
ScanFlops flops_of(const NormDescentScan& in) {
  const auto d = static_cast<double>(in.width), b = static_cast<double>(in.mini_batch);
  return {.forward = 2 * b * d + 6 * d * d + 30 * d,
          .states_alone = 4 * d * d + 30 * d,
          .scores = b * d};
}

}  // namespace

std::span<const ScanField<NormDescentScan>> NormDescentScan::fields() { return kFields; }

int64_t norm_descent_scan_kept(Exec& exec, const NormDescentScan& in) {
  check_scan(in);
  int64_t floats = 0;
  dispatch(exec, {.name = "norm_descent_scan_kept", .over = Over::kIndices},
           cpu::norm_descent_scan_kept, in, floats);
  return floats;
}

void norm_descent_scan_forward(Exec& exec, const NormDescentScan& in,
                               const NormDescentStates& entering, View out,
                               const NormDescentStatesOut& leaving, View kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, leaving, "a leaving state");
  check_output(in, "out", out);
  dispatch(exec,
           forward_call("norm_descent_scan_forward", in, flops_of(in), bytes_of_states(entering),
                        out, bytes_of_states(leaving) + bytes_of(kept)),
           cpu::norm_descent_scan_forward, in, entering, out, leaving, kept);
}

void norm_descent_scan_backward(Exec& exec, const NormDescentScan& in,
                                const NormDescentStates& entering, ConstView d_out,
                                const NormDescentStates& d_leaving,
                                const NormDescentGradients& gradients, ConstView kept) {
  check_scan(in);
  check_states(in, entering, "an entering state");
  check_states(in, d_leaving, "the gradient of a leaving state");
  check_states(in, gradients.entering, "the gradient of an entering state");
  check_output(in, "d_out", d_out);
  check_gradients(in, gradients);
  dispatch(exec,
           backward_call("norm_descent_scan_backward", in, flops_of(in),
                         bytes_of_states(entering) + bytes_of_states(d_leaving), d_out, gradients,
                         bytes_of_states(gradients.entering), kept),
           cpu::norm_descent_scan_backward, in, entering, d_out, d_leaving, gradients, kept);
}

}  // namespace weft::kernels
