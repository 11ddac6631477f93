#include "kernels/scan/rank_one_scan.h"

#include "kernels/scan/cpu/rank_one_scan.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

bool is_delta(const RankOneScan& in) { return !given(in.alpha); }

int64_t keys(const RankOneScan& in) { return in.heads * in.key; }
int64_t values(const RankOneScan& in) { return in.heads * in.value; }
int64_t strengths(const RankOneScan& in) { return is_delta(in) ? in.heads : keys(in); }
constexpr ScanField<RankOneScan> kFields[] = {
    {"q", &RankOneScan::q, &RankOneScanGradients::dq, keys},
    {"k", &RankOneScan::k, &RankOneScanGradients::dk, keys},
    {"v", &RankOneScan::v, &RankOneScanGradients::dv, values},
    {"log_decay", &RankOneScan::log_decay, &RankOneScanGradients::d_log_decay, keys,
     FieldType::kF32},
    {"alpha", &RankOneScan::alpha, &RankOneScanGradients::d_alpha, keys, FieldType::kScanOrF32,
     Presence::kOptional},
    {"beta", &RankOneScan::beta, &RankOneScanGradients::d_beta, strengths, FieldType::kScanOrF32},
};

void check_scan(const RankOneScan& in) {
  check_head_counts(in.kName, in.heads, in.heads, in.key, in.value);
  check_inputs(in);
  if (is_delta(in)) check_f32(in.beta, "rank_one_scan: beta");
}

// Scores of two kinds of queries (q and alpha) with two kinds of keys (k and beta), their products
// with the values, half of a square each; the triangular system; the state read and written twice.
ScanFlops flops_of(const RankOneScan& in) {
  const auto k = static_cast<double>(in.key), v = static_cast<double>(in.value);
  constexpr double c = kCountedChunk;
  return {.forward = c * (4 * k + 4 * v + c / 3) + 8 * k * v,
          .states_alone = c * (2 * k + 2 * v + c / 3) + 6 * k * v,
          .scores = 4 * c * k};
}

}  // namespace

std::span<const ScanField<RankOneScan>> RankOneScan::fields() { return kFields; }

int64_t rank_one_scan_kept(Exec& exec, const RankOneScan& in) {
  check_scan(in);
  int64_t floats = 0;
  dispatch(exec, {.name = "rank_one_scan_kept", .over = Over::kIndices}, cpu::rank_one_scan_kept,
           in, floats);
  return floats;
}

void rank_one_scan_forward(Exec& exec, const RankOneScan& in, ConstView initial_state, View out,
                           View final_state, View kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_state(in, "final_state", final_state);
  if (given(out)) check_head_output(in, "out", out);
  dispatch(exec,
           forward_call("rank_one_scan_forward", in, flops_of(in), bytes_of(initial_state), out,
                        bytes_of(final_state, kept)),
           cpu::rank_one_scan_forward, in, initial_state, out, final_state, kept);
}

void rank_one_scan_backward(Exec& exec, const RankOneScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const RankOneScanGradients& gradients, ConstView kept) {
  check_scan(in);
  check_head_state(in, "initial_state", initial_state);
  check_head_gradients(in, d_out, d_final_state, gradients);
  if (is_delta(in)) check_f32(gradients.d_beta, "rank_one_scan: d_beta");
  dispatch(exec,
           backward_call("rank_one_scan_backward", in, flops_of(in),
                         bytes_of(initial_state, d_final_state), d_out, gradients,
                         bytes_of(gradients.d_initial_state), kept),
           cpu::rank_one_scan_backward, in, initial_state, d_out, d_final_state, gradients, kept);
}

}  // namespace weft::kernels
