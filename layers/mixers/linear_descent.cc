#include "layers/mixers/linear_descent.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/group_norm.h"
#include "layers/recurrence/delta.h"
#include "layers/recurrence/momentum.h"
#include "layers/recurrence/norm_descent.h"

namespace weft {
namespace {

// Per head, f32; without weight decay, since a model without weights has nothing to normalize.
Parameter& declare(const Build& build, const char* name, Shape shape, const Init& init) {
  return build.declare({.name = build.scope + name,
                        .global = shape,
                        .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                        .init = init,
                        .weight_decay = false,
                        .f32 = true});
}

class InnerNormCore final : public LinearCore {
 public:
  InnerNormCore(const Build& build, int64_t heads, int64_t width, int64_t mini_batch)
      : heads_(heads),
        weight_(declare(build, "ln.weight", {heads, width}, Init::constant(1.0))),
        bias_(declare(build, "ln.bias", {heads, width}, Init::zeros())),
        start_m_(declare(build, "M0", {heads, width, width}, Init::normal(kInitDeviation))),
        start_n_(declare(build, "n0", {heads, width}, Init::zeros())),
        recurrence_({.heads = heads,
                     .width = width,
                     .mini_batch = mini_batch,
                     .start_m = &start_m_.value,
                     .start_n = &start_n_.value}) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    Saved f;
    f.read = recurrence_.forward(exec, inputs(in), sequence, state, saved, overlapped);
    const Shape per_head{sequence.tokens(), heads_};
    f.statistics = {exec.empty(per_head), exec.empty(per_head)};
    const Tensor out = exec.empty(f.read.shape());
    kernels::group_norm_forward(exec, norm(), f.read, weight_.value, bias_.value, out,
                                f.statistics);
    kernels::add(exec, out, in.q, out);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& gradients, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor d_read = exec.empty(f.read.shape());
    kernels::group_norm_backward(exec, norm(), d_out, f.read, weight_.value, f.statistics,
                                 {d_read, weight_.grad, bias_.grad});
    recurrence_.backward(exec, inputs(in), sequence, d_read, d_state,
                         {.q = gradients.q,
                          .k = gradients.k,
                          .v = gradients.v,
                          .eta = gradients.gates[0],
                          .w = weight_.grad,
                          .c = bias_.grad,
                          .start_m = start_m_.grad,
                          .start_n = start_n_.grad},
                         saved, overlapped);
    kernels::add(exec, gradients.q, d_out, gradients.q);
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor read;  // q M + n
    kernels::GroupNormStatistics statistics;
  };
  NormDescentInputs inputs(const CoreInputs& in) const {
    return {in.q, in.k, in.v, in.gates[0], weight_.value, bias_.value};
  }
  kernels::GroupNorm norm() const { return {.heads = heads_, .epsilon = 1e-6f}; }

  int64_t heads_;
  Parameter &weight_, &bias_;      // [heads, width]
  Parameter &start_m_, &start_n_;  // [heads, width, width], [heads, width]
  NormDescentRecurrence recurrence_;
};

CoreMaker precise(const HeadOptions& h, CoreMaker core) {
  return with_unit_length({h.heads, DType::kF32, DType::kF32}, std::move(core));
}

CoreMaker momentum_of(const HeadOptions& h, int64_t mini_batch, bool momentum) {
  return precise(h, core_of<MomentumRecurrence, 3>({.heads = h.heads,
                                                    .dk = h.dk,
                                                    .dv = h.dv,
                                                    .scale = key_scale(h.dk),
                                                    .mini_batch = mini_batch,
                                                    .momentum = momentum}));
}

}  // namespace

GateSpec descent_gate(const char* stem, size_t slot, double start) {
  return {.stem = stem,
          .slot = slot,
          .map = GateSpec::Map::kSigmoid,
          .bias = GateSpec::Bias::kExact,
          .bias_init = Init::constant(start)};
}

CoreMaker descent_core(DType compute, const HeadOptions& h, int64_t mini_batch) {
  if (mini_batch > 1) return momentum_of(h, mini_batch, false);
  return with_unit_length(
      {h.heads, compute, DType::kF32},
      core_of<DeltaRecurrence, 2>({h.heads, h.heads, h.dk, h.dv, key_scale(h.dk)}));
}

CoreMaker momentum_core(const HeadOptions& h, int64_t mini_batch) {
  return momentum_of(h, mini_batch, true);
}

CoreMaker inner_norm_core(const HeadOptions& h, int64_t mini_batch) {
  return precise(h, [h, mini_batch](const Build& build) {
    return std::make_unique<InnerNormCore>(build, h.heads, h.dk, mini_batch);
  });
}

}  // namespace weft
