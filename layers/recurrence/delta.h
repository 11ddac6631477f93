#pragma once

#include "kernels/scan/delta_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q, k [tokens, qk_heads * dk], v [tokens, heads * dv]; beta (b) f32
// [tokens, heads]; log_decay (g) the same or empty.
struct DeltaInputs {
  ConstView q, k, v, beta, log_decay;
};
struct DeltaGradients {  // overwritten; log_decay empty when there is none
  View q, k, v, beta, log_decay;
};
struct DeltaKept {
  Tensor chunks;  // what forward found out about each; undefined: to be done again
};

// The (gated) delta rule without its weights:                                  (vectors are rows)
//   M_t = e^{g_t} (I - b_t k_t^T k_t) M_{t-1} + b_t k_t^T v_t,    o_t = scale * q_t M_t
// State: M [documents, heads, dk, dv].
class DeltaRecurrence final : public AffineRecurrence<DeltaInputs, DeltaGradients, DeltaKept> {
 public:
  struct Options {
    int64_t heads = 0, qk_heads = 0;  // groups of heads share a query and a key
    int64_t dk = 0, dv = 0;
    float scale = 1.0f;
  };

  explicit DeltaRecurrence(const Options& options);

  Tensor run(Exec& exec, const DeltaInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, DeltaKept& keep) const override;
  void run_backward(Exec& exec, const DeltaInputs& in, const Sequence& sequence,
                    const DeltaKept& keep, const State& entering, const Cotangents& d,
                    const DeltaGradients& gradients) const override;
  Summary summarize(Exec& exec, const DeltaInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "delta_scan"; }
  double flops_per_token() const override;

 protected:
  DeltaGradients scratch_gradients(Exec& exec, const DeltaInputs& in,
                                   std::vector<Tensor>& hold) const override;

 private:
  kernels::DeltaScan scan(const DeltaInputs& in, const Sequence& sequence) const;
  // What leaves the documents, without queries and outputs.
  State pass(Exec& exec, const DeltaInputs& in, const Sequence& sequence,
             const State& entering) const;

  Options options_;
};

}  // namespace weft
