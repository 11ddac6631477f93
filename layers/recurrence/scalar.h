#pragma once

#include "kernels/rows/normalizer.h"
#include "kernels/scan/scalar_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q [tokens, heads * dk], k [tokens, kv_heads * dk], v [tokens, kv_heads *
// dv]; log_decay f32 [tokens, heads], [heads] or empty. With qk_heads: q, k [tokens, qk_heads *
// dk], v [tokens, heads * dv].
struct ScalarInputs {
  ConstView q, k, v, log_decay;
};
struct ScalarGradients {  // overwritten; log_decay empty when not wanted
  View q, k, v, log_decay;
};
struct ScalarKept {
  Tensor values;  // normalize: (v | 1)
  Tensor out;     // normalize: (numerator | denominator), f32
  Tensor chunks;  // states between them; if undefined, backward recomputes them
};

// The recurrence whose state decays by one number per head and token, without its weights:
//   M_t = e^{g_t} M_{t-1} + k_t^T v_t,    o_t = scale * q_t M_t                 (vectors are rows)
// and, with `normalize`,  z_t = e^{g_t} z_{t-1} + k_t,  o_t <- o_t / (scale * q_t . z_t + epsilon).
// State: M [documents, heads, dk, dv], and z [documents, heads, dk] with `normalize`.
class ScalarRecurrence final : public AffineRecurrence<ScalarInputs, ScalarGradients, ScalarKept> {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
    bool normalize = false;
    float epsilon = kernels::kNormalizerEpsilon;
    int64_t qk_heads = 0;  // not 0: groups of heads share q and k; kv_heads is not looked at
  };
  explicit ScalarRecurrence(const Options& options);

  Tensor run(Exec& exec, const ScalarInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, ScalarKept& keep) const override;
  void run_backward(Exec& exec, const ScalarInputs& in, const Sequence& sequence,
                    const ScalarKept& keep, const State& entering, const Cotangents& d,
                    const ScalarGradients& gradients) const override;
  Summary summarize(Exec& exec, const ScalarInputs& in, const Sequence& sequence) const override;
  State state_gradient(Exec& exec, const ScalarInputs& in, const Sequence& sequence,
                       const ScalarKept& keep, const State& entering,
                       ConstView d_out) const override;

  std::string_view program() const override { return "scalar_scan"; }
  double flops_per_token() const override;

 protected:
  ScalarGradients scratch_gradients(Exec&, const ScalarInputs&,
                                    std::vector<Tensor>&) const override {
    return {};  // state_gradient has a pass of its own
  }

 private:
  kernels::ScalarScan scan(const ScalarInputs& in, ConstView values,
                           const Sequence& sequence) const;
  Tensor with_ones(Exec& exec, ConstView v) const;
  State split(Exec& exec, const Tensor& wide) const;  // the scan's state as ours, and back
  Tensor join(Exec& exec, const State& state) const;
  ConstView scan_gradient(Exec& exec, const ScalarKept& keep, ConstView d_out, Tensor& hold) const;

  Options options_;
};

}  // namespace weft
