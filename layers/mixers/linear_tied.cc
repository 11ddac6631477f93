#include "layers/mixers/linear_tied.h"

#include <cmath>

#include "kernels/gates/decay_gate.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

class TiedKeysCore final : public LinearCore {
 public:
  TiedKeysCore(const HeadOptions& h, std::unique_ptr<LowerBounds> bounds)
      : recurrence_({h, 1.0f / std::sqrt(static_cast<float>(h.dk))}), bounds_(std::move(bounds)) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    Saved f{exec.empty(in.k.shape, in.k.dtype), exec.empty(in.k.shape),
            bounds_ ? bounds_->value(exec) : Tensor{}};
    kernels::tied_gates_forward(exec, in.k, given(f.lower), f.log_decay, f.k);
    Tensor out = recurrence_.forward(exec, {in.q, f.k, in.v, f.log_decay}, sequence, state, saved,
                                     overlapped);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& gradients, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor d_decay = exec.empty(f.log_decay.shape()), dk = exec.empty(f.k.shape());
    recurrence_.backward(exec, {in.q, f.k, in.v, f.log_decay}, sequence, d_out, d_state,
                         {gradients.q, dk, gradients.v, d_decay}, saved, overlapped);
    kernels::tied_gates_backward(exec,
                                 {.f = in.k,
                                  .lower = given(f.lower),
                                  .dg = d_decay,
                                  .dk = dk,
                                  .df = gradients.k,
                                  .d_lower = wanted(bounds_ ? bounds_->gradient() : Tensor{})});
  }
  void finish_gradients(Exec& exec) const override {
    if (bounds_) bounds_->finish_gradients(exec);
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor k;          // 1 - a
    Tensor log_decay;  // log a, f32
    Tensor lower;      // [kv_heads * dk], or undefined: 0
  };
  DiagonalRecurrence recurrence_;
  std::unique_ptr<LowerBounds> bounds_;
};

}  // namespace

CoreMaker tied_keys_core(const HeadOptions& heads, LowerBoundsMaker bounds) {
  return [heads, bounds](const Build& build) {
    return std::make_unique<TiedKeysCore>(heads, bounds ? bounds(build) : nullptr);
  };
}

}  // namespace weft
