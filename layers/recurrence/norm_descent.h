#pragma once

#include <optional>

#include "kernels/scan/norm_descent_scan.h"
#include "layers/recurrence/recurrence.h"

namespace weft {

// Per token, flat heads: q, k, v [tokens, heads * width]; eta f32 [tokens, heads]. w, c f32 [heads,
// width]: the inner norm.
struct NormDescentInputs {
  ConstView q, k, v;
  ConstView eta;
  ConstView w, c;
};
struct NormDescentOutputs {  // overwritten, but for those of weights, which are added to
  View q, k, v;
  View eta;
  View w, c;
  View start_m = {}, start_n = {};  // of the state that documents start from, where it is learned
};
struct NormDescentKept {
  Tensor states;  // some of those between mini-batches; undefined: to be made again
};

// Descent with a LayerNorm inside its loss, without its weights (kernels/scan/norm_descent_scan.h).
// Not affine: what a span does to a state has no summary, sequence ranks hand their states round
// (Exchange::kRing). State: M [documents, heads, width, width], n [documents, heads, width], and
// with mini-batches of several tokens both as the mini-batch found them; a state that enters may
// leave these out when a mini-batch begins with it. The place in the mini-batch follows from the
// positions, so spans may be cut anywhere.
class NormDescentRecurrence final
    : public Recurrence<NormDescentInputs, NormDescentOutputs, NormDescentKept> {
 public:
  struct Options {
    int64_t heads = 0, width = 0;
    float scale = 1.0f;
    int64_t mini_batch = 16;
    // f32 [heads, width, width] and [heads, width]: where documents start; null: at zero.
    const Tensor* start_m = nullptr;
    const Tensor* start_n = nullptr;
  };
  explicit NormDescentRecurrence(const Options& options) : options_(options) {}

  Exchange exchange() const override { return Exchange::kRing; }
  std::string_view program() const override { return "norm_descent_scan"; }
  State start(Exec& exec, int64_t sequences) const override;

  Tensor run(Exec& exec, const NormDescentInputs& in, const Sequence& sequence,
             const State& entering, State* leaving, NormDescentKept& keep) const override;
  void run_backward(Exec& exec, const NormDescentInputs& in, const Sequence& sequence,
                    const NormDescentKept& keep, const State& entering, const Cotangents& d,
                    const NormDescentOutputs& gradients) const override;

  // There are none; asked for, each of these says so.
  Summary summarize(Exec&, const NormDescentInputs&, const Sequence&) const override;
  Summary combine(Exec&, const Summary&, const Summary&) const override;
  State apply(Exec&, const Summary&, const State&) const override;
  State apply_adjoint(Exec&, const Summary&, const State&, const State&) const override;
  State state_gradient(Exec&, const NormDescentInputs&, const Sequence&, const NormDescentKept&,
                       const State&, ConstView) const override;

  double flops_per_token() const override;

 private:
  kernels::NormDescentScan scan(const NormDescentInputs& in, const Sequence& sequence,
                                const std::vector<int32_t>& before) const;
  State zeros(Exec& exec, int64_t sequences) const;
  // Adds the gradients of states of documents that start in this span to those of their start.
  void start_backward(Exec& exec, const Sequence& sequence, const State& entering,
                      const State& d_entering, const NormDescentOutputs& gradients) const;

  Options options_;
};

}  // namespace weft
