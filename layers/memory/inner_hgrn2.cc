#include <cmath>

#include "kernels/gates/decay_gate.h"
#include "layers/memory/inner_rule.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

// Memories of HGRN2: what k_proj gives is a forget gate per key channel, a = sigmoid(f), and its
// complement the key, k = 1 - a.
class InnerHgrn2 final : public InnerRule {
 public:
  explicit InnerHgrn2(const InnerBuild& b)
      : recurrence_({{b.heads, b.heads, b.dk, b.dv}, 1.0f / std::sqrt(static_cast<float>(b.dk))}) {}

  bool keys_are_gates() const override { return true; }

  Tensor forward(Exec& exec, const InnerInputs& in, State* state, SavedStack& saved,
                 const Queries& queries) const override {
    Saved f{exec.empty({in.k.rows(), in.k.width()}, in.k.dtype),
            exec.empty({in.k.rows(), in.k.width()})};
    kernels::tied_gates_forward(exec, in.k, {}, f.log_decay, f.k);
    const Tensor out = recurrence_.forward(exec, {in.q, f.k, in.v, f.log_decay}, in.rows.sequence,
                                           state, saved, queries);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor dk = exec.empty(f.k.shape()), dg = exec.empty(f.k.shape());
    recurrence_.backward(exec, {in.q, f.k, in.v, f.log_decay}, in.rows.sequence, d_out, d_state,
                         {gradients.q, dk, gradients.v, dg}, saved);
    kernels::tied_gates_backward(
        exec, {.f = in.k, .lower = {}, .dg = dg, .dk = dk, .df = gradients.k, .d_lower = {}});
  }
  double flops_per_row() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor k;          // 1 - a
    Tensor log_decay;  // log a, f32
  };
  DiagonalRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_hgrn2(const InnerBuild& inner) {
  return std::make_unique<InnerHgrn2>(inner);
}

}  // namespace weft
