#pragma once

#include "kernels/scan/diagonal_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q [tokens, heads * dk], k [tokens, kv_heads * dk], v [tokens, kv_heads *
// dv]; log_decay f32 [tokens, kv_heads * dk]; bonus f32 [heads * dk] or empty.
struct DiagonalInputs {
  ConstView q, k, v, log_decay;
  ConstView bonus = {};
};
struct DiagonalGradients {  // overwritten, but for the bonus, which is added to
  View q, k, v, log_decay;
  View bonus = {};
};
struct DiagonalKept {
  Tensor chunks;  // states between them; undefined: to be found out again
};

// The recurrence whose state decays by one number per key channel and token, without its weights:
//   M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t,    o_t = scale * q_t M_t           (vectors are rows)
// or, with a bonus u,  o_t = scale * (q_t M_{t-1} + (q_t * u * k_t) . 1 v_t).
// State: M [documents, heads, dk, dv].
class DiagonalRecurrence final
    : public AffineRecurrence<DiagonalInputs, DiagonalGradients, DiagonalKept> {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
  };

  explicit DiagonalRecurrence(const Options& options);

  Tensor run(Exec& exec, const DiagonalInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, DiagonalKept& keep) const override;
  void run_backward(Exec& exec, const DiagonalInputs& in, const Sequence& sequence,
                    const DiagonalKept& keep, const State& entering, const Cotangents& d,
                    const DiagonalGradients& gradients) const override;
  Summary summarize(Exec& exec, const DiagonalInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "diagonal_scan"; }
  double flops_per_token() const override;

 protected:
  DiagonalGradients scratch_gradients(Exec& exec, const DiagonalInputs& in,
                                      std::vector<Tensor>& hold) const override;

 private:
  kernels::DiagonalScan scan(const DiagonalInputs& in, const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
