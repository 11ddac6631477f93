#include "kernels/rows/rebased.h"
#include "layers/basic/cast.h"
#include "layers/memory/inner_rule.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

constexpr float kEpsilon = 1e-5f;  // of the LayerNorm, and beside the sum of weights

// Memories of Rebased: (q . k)^2 of normalized queries and keys as the weight of a value. gamma and
// beta of the norm are one for all memories.
class InnerRebased final : public InnerRule {
 public:
  explicit InnerRebased(const InnerBuild& b)
      : map_{b.heads, kEpsilon},
        width_(kernels::rebased_width(b.dk)),
        compute_(b.build.compute),
        gamma_(vector(b, "gamma", Init::constant(1.0))),
        beta_(vector(b, "beta", Init::zeros())),
        recurrence_(
            {.heads = {b.heads, b.heads, width_, b.dv}, .normalize = true, .epsilon = kEpsilon}) {}

  Tensor forward(Exec& exec, const InnerInputs& in, State* state, SavedStack& saved,
                 const Queries& queries) const override {
    Saved f{exec.empty({in.q.rows(), map_.heads * width_}),
            exec.empty({in.k.rows(), map_.heads * width_}),
            exec.empty({in.v.rows(), in.v.width()})};
    features(exec, in.k, f.k);
    kernels::copy(exec, in.v, f.v);
    const Tensor out =
        recurrence_.forward(exec, {f.q, f.k, f.v, {}}, in.rows.sequence, state, saved, [&] {
          queries();
          features(exec, in.q, f.q);
        });
    saved.push(std::move(f));
    return in_type(exec, out, compute_);
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor dq = exec.empty(f.q.shape()), dk = exec.empty(f.k.shape()),
                 dv = exec.empty(f.v.shape());
    recurrence_.backward(exec, {f.q, f.k, f.v, {}}, in.rows.sequence, d_out, d_state,
                         {dq, dk, dv, {}}, saved);
    kernels::copy(exec, dv, gradients.v);
    features_backward(exec, in.q, dq, gradients.q);
    features_backward(exec, in.k, dk, gradients.k);
  }
  double flops_per_row() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor q, k, v;  // features and values, f32: kernels/rows/rebased.h says why
  };
  static Parameter& vector(const InnerBuild& b, const char* name, const Init& init) {
    return b.build.declare({.name = b.build.scope + name,
                            .global = {b.dk},
                            .partial_over = {Axis::kTensor},
                            .init = init,
                            .weight_decay = false,
                            .f32 = true});
  }
  void features(Exec& exec, ConstView x, const Tensor& phi) const {
    kernels::rebased_features_forward(exec, map_, x, gamma_.value, beta_.value, phi);
  }
  void features_backward(Exec& exec, ConstView x, const Tensor& d_phi, View dx) const {
    kernels::rebased_features_backward(
        exec, map_, {x, gamma_.value, beta_.value, d_phi, dx, gamma_.grad, beta_.grad});
  }

  kernels::RebasedFeatures map_;
  int64_t width_;
  DType compute_;
  Parameter &gamma_, &beta_;  // [dk]
  ScalarRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_rebased(const InnerBuild& inner) {
  return std::make_unique<InnerRebased>(inner);
}

}  // namespace weft
