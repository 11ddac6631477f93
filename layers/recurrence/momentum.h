#pragma once

#include "kernels/scan/momentum_scan.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q, k [tokens, heads * dk], v [tokens, heads * dv]; gates f32 [tokens,
// heads], alpha and eta empty without momentum.
struct MomentumInputs {
  ConstView q, k, v;
  ConstView theta, alpha = {}, eta = {};
};
struct MomentumGradients {  // overwritten
  View q, k, v;
  View theta, alpha = {}, eta = {};
};
struct MomentumKept {
  Tensor states;  // those between chunks; undefined: to be made again
};

// Descent on |k M - v|^2 / 2 without its weights (kernels/scan/momentum_scan.h), gradients taken
// where the token's mini-batch began. State: M, with momentum S, and with mini-batches of several
// tokens M as the mini-batch found it, each [documents, heads, dk, dv]; a state that enters may
// leave out the last one when a mini-batch begins with it. The place in the mini-batch follows from
// the positions.
class MomentumRecurrence final
    : public AffineRecurrence<MomentumInputs, MomentumGradients, MomentumKept> {
 public:
  struct Options {
    int64_t heads = 0, dk = 0, dv = 0;
    float scale = 1.0f;
    int64_t mini_batch = 1;
    bool momentum = false;
  };
  explicit MomentumRecurrence(const Options& options);

  Tensor run(Exec& exec, const MomentumInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, MomentumKept& keep) const override;
  void run_backward(Exec& exec, const MomentumInputs& in, const Sequence& sequence,
                    const MomentumKept& keep, const State& entering, const Cotangents& d,
                    const MomentumGradients& gradients) const override;
  Summary summarize(Exec& exec, const MomentumInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "momentum_scan"; }
  double flops_per_token() const override;

 protected:
  MomentumGradients scratch_gradients(Exec& exec, const MomentumInputs& in,
                                      std::vector<Tensor>& hold) const override;

 private:
  // What leaves the documents, without queries and outputs.
  State pass(Exec& exec, const MomentumInputs& in, const Sequence& sequence,
             const State& entering) const;
  kernels::MomentumScan scan(const MomentumInputs& in, const Sequence& sequence,
                             const std::vector<int32_t>& before) const;
  template <class States>
  States states(const State& state) const;  // as kernels take them

  Options options_;
};

}  // namespace weft
