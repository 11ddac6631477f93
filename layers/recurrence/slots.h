#pragma once

#include "kernels/scan/diagonal_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/affine.h"

namespace weft {

// Per token, flat heads: q [tokens, heads * dk], k [tokens, kv_heads * dk], v [tokens, kv_heads *
// dv]; log_decay f32 [tokens, kv_heads * slots].
struct SlotsInputs {
  ConstView q, k, v, log_decay;
};
struct SlotsGradients {  // overwritten
  View q, k, v, log_decay;
};
struct SlotsKept {
  Tensor write;  // w [tokens, kv_heads * slots]
  Tensor share;  // p [tokens, heads * slots]
  // states between chunks of the two scans; if undefined, backward recomputes them
  Tensor key_chunks, value_chunks;
};

// A memory of slots that forget, each by its own gate, and take up what they forget (vectors are
// rows): with a = e^{g_t}, w = 1 - a
//   K_t = diag(a) K_{t-1} + w^T k_t,   V_t = diag(a) V_{t-1} + w^T v_t,
//   o_t = softmax(scale * K_t q_t^T) V_t
// Two scans: the first reads K^T, whose decays are those of value channels; the second V with the
// softmax as its query.
// State: K [documents, heads, slots, dk] and V [documents, heads, slots, dv].
class SlotsRecurrence final : public AffineRecurrence<SlotsInputs, SlotsGradients, SlotsKept> {
 public:
  struct Options {
    HeadOptions heads;
    int64_t slots = 0;
    float scale = 1.0f;
  };

  explicit SlotsRecurrence(const Options& options);

  Tensor run(Exec& exec, const SlotsInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, SlotsKept& keep) const override;
  void run_backward(Exec& exec, const SlotsInputs& in, const Sequence& sequence,
                    const SlotsKept& keep, const State& entering, const Cotangents& d,
                    const SlotsGradients& gradients) const override;
  Summary summarize(Exec& exec, const SlotsInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "diagonal_scan, two_sided_scan"; }
  double flops_per_token() const override;

 protected:
  SlotsGradients scratch_gradients(Exec& exec, const SlotsInputs& in,
                                   std::vector<Tensor>& hold) const override;

 private:
  kernels::DiagonalScan scores(const SlotsInputs& in, const SlotsKept& keep,
                               const Sequence& sequence) const;
  kernels::DiagonalScan reads(const SlotsInputs& in, const SlotsKept& keep,
                              const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
