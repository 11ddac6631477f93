#pragma once

#include "kernels/scan/rank_one_scan.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q, k [tokens, heads * dk], v [tokens, heads * dv], log_decay (g <= 0) f32
// [tokens, heads * dk]. alpha (a) and beta (b) as k, or no alpha and beta f32 [tokens, heads].
struct RankOneInputs {
  ConstView q, k, v, log_decay, alpha, beta;
};
struct RankOneGradients {  // overwritten; alpha empty when there is none
  View q, k, v, log_decay, alpha, beta;
};
struct RankOneKept {
  Tensor chunks;  // what forward found out about each; undefined: to be done again
};

// A diagonal plus rank-one transition without its weights:                     (vectors are rows)
//   M_t = diag(e^{g_t}) M_{t-1} + b_t^T (a_t M_{t-1}) + k_t^T v_t,    o_t = scale * q_t M_t
// or, without alpha, the delta rule with a decay per channel:
//   M_t = (I - b_t k_t^T k_t) diag(e^{g_t}) M_{t-1} + b_t k_t^T v_t
// State: M [documents, heads, dk, dv].
class RankOneRecurrence final
    : public AffineRecurrence<RankOneInputs, RankOneGradients, RankOneKept> {
 public:
  struct Options {
    int64_t heads = 0, dk = 0, dv = 0;
    float scale = 1.0f;
  };

  explicit RankOneRecurrence(const Options& options);

  Tensor run(Exec& exec, const RankOneInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, RankOneKept& keep) const override;
  void run_backward(Exec& exec, const RankOneInputs& in, const Sequence& sequence,
                    const RankOneKept& keep, const State& entering, const Cotangents& d,
                    const RankOneGradients& gradients) const override;
  Summary summarize(Exec& exec, const RankOneInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "rank_one_scan"; }
  double flops_per_token() const override;

 protected:
  RankOneGradients scratch_gradients(Exec& exec, const RankOneInputs& in,
                                     std::vector<Tensor>& hold) const override;

 private:
  kernels::RankOneScan scan(const RankOneInputs& in, const Sequence& sequence) const;
  // What leaves the documents, without queries and outputs.
  State pass(Exec& exec, const RankOneInputs& in, const Sequence& sequence,
             const State& entering) const;

  Options options_;
};

}  // namespace weft
