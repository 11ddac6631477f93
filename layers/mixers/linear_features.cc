#include "layers/mixers/linear_features.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/rebased.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

constexpr float kEpsilon = 1e-5f;  // of the LayerNorm, and beside the sum of weights

class RebasedCore final : public LinearCore {
 public:
  RebasedCore(const Build& build, const HeadOptions& h)
      : heads_(h),
        width_(kernels::rebased_width(h.dk)),
        gamma_(declare(build, "gamma", Init::constant(1.0))),
        beta_(declare(build, "beta", Init::zeros())),
        recurrence_({.heads = {h.heads, h.kv_heads, width_, h.dv},
                     .normalize = true,
                     .epsilon = kEpsilon}) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    Saved f{exec.empty({in.q.rows(), heads_.heads * width_}),
            exec.empty({in.k.rows(), heads_.kv_heads * width_}),
            exec.empty({in.v.rows(), in.v.width()})};
    features(exec, in.k, heads_.kv_heads, f.k);
    kernels::copy(exec, in.v, f.v);
    Tensor out = recurrence_.forward(exec, {f.q, f.k, f.v, {}}, sequence, state, saved, [&] {
      overlapped();
      features(exec, in.q, heads_.heads, f.q);
    });
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& gradients, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor dq = exec.empty(f.q.shape()), dk = exec.empty(f.k.shape()),
                 dv = exec.empty(f.v.shape());
    recurrence_.backward(exec, {f.q, f.k, f.v, {}}, sequence, d_out, d_state, {dq, dk, dv, {}},
                         saved, overlapped);
    kernels::copy(exec, dv, gradients.v);
    features_backward(exec, in.q, dq, heads_.heads, gradients.q);
    features_backward(exec, in.k, dk, heads_.kv_heads, gradients.k);
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor q, k, v;  // features and values, f32
  };
  Parameter& declare(const Build& build, const char* name, const Init& init) const {
    return build.declare({.name = build.scope + name,
                          .global = {heads_.dk},
                          .partial_over = {Axis::kTensor},
                          .init = init,
                          .weight_decay = false,
                          .f32 = true});
  }
  void features(Exec& exec, ConstView x, int64_t heads, const Tensor& phi) const {
    kernels::rebased_features_forward(exec, {heads, kEpsilon}, x, gamma_.value, beta_.value, phi);
  }
  void features_backward(Exec& exec, ConstView x, const Tensor& d_phi, int64_t heads,
                         View dx) const {
    kernels::rebased_features_backward(
        exec, {heads, kEpsilon},
        {x, gamma_.value, beta_.value, d_phi, dx, gamma_.grad, beta_.grad});
  }

  HeadOptions heads_;
  int64_t width_;
  Parameter &gamma_, &beta_;  // [dk]
  ScalarRecurrence recurrence_;
};

}  // namespace

CoreMaker rebased_core(const HeadOptions& heads) {
  return [heads](const Build& build) { return std::make_unique<RebasedCore>(build, heads); };
}

}  // namespace weft
