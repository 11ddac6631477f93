#pragma once

#include "kernels/scan/diagonal_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q, k [tokens, heads * dk], v [tokens, heads * dv]; log decays f32 of key
// channels [tokens, heads * dk] and of value channels [tokens, heads * dv].
struct TwoSidedInputs {
  ConstView q, k, v, key_decay, value_decay;
};
struct TwoSidedGradients {  // overwritten
  View q, k, v, key_decay, value_decay;
};
struct TwoSidedKept {
  Tensor chunks;  // states between them; undefined: to be found out again
};

// The recurrence whose state decays by one number per key channel and one per value channel:
//   M_t = diag(e^{g_t}) M_{t-1} diag(e^{h_t}) + k_t^T v_t,    o_t = scale * q_t M_t
// State: M [documents, heads, dk, dv].
class TwoSidedRecurrence final
    : public AffineRecurrence<TwoSidedInputs, TwoSidedGradients, TwoSidedKept> {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
  };

  explicit TwoSidedRecurrence(const Options& options);

  Tensor run(Exec& exec, const TwoSidedInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, TwoSidedKept& keep) const override;
  void run_backward(Exec& exec, const TwoSidedInputs& in, const Sequence& sequence,
                    const TwoSidedKept& keep, const State& entering, const Cotangents& d,
                    const TwoSidedGradients& gradients) const override;
  Summary summarize(Exec& exec, const TwoSidedInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "two_sided_scan"; }
  double flops_per_token() const override;

 protected:
  TwoSidedGradients scratch_gradients(Exec& exec, const TwoSidedInputs& in,
                                      std::vector<Tensor>& hold) const override;

 private:
  kernels::DiagonalScan scan(const TwoSidedInputs& in, const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
