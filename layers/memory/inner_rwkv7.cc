#include "kernels/gates/rwkv7.h"
#include "layers/basic/rwkv7_start.h"
#include "layers/memory/memory_gate.h"
#include "layers/recurrence/rank_one.h"

namespace weft {
namespace {

constexpr float kSlowestDecay = -0.60653066f;  // -e^{-1/2}

// Memories of RWKV-7: decays per key channel, and a key split into what it removes from the memory
// and what it writes (kernels/gates/rwkv7.h), by a rate per channel. The memories share k_k and
// k_a, and all start as the mixer's weights do.
class InnerRwkv7 final : public InnerRule {
 public:
  explicit InnerRwkv7(const InnerBuild& b)
      : InnerRwkv7(b, Rwkv7Start(b.build, b.here.all_heads, b.dk)) {}
  InnerRwkv7(const InnerBuild& b, const Rwkv7Start& start)
      : heads_(b.heads),
        compute_(b.build.compute),
        decay_(b, {.name = "w",
                   .width = b.dk,
                   .map = MemoryGate::Map::kSigmoid,
                   .factor = kSlowestDecay,
                   .rank = b.gate_rank,
                   .between = kernels::Activation::kTanh,
                   .bias = true,
                   .bias_init = start.decay(),
                   .pair = lora()}),
        rate_(b, {.name = "a",
                  .width = b.dk,
                  .rank = b.gate_rank,
                  .bias = true,
                  .bias_init = start.ramp(-0.19, 0.4, 0.3),
                  .pair = lora()}),
        k_k_(vector(b, "k_k", start.ramp(0.71, -0.1, 0.0))),
        k_a_(vector(b, "k_a", Init::constant(1.02))),
        recurrence_({b.heads, b.dk, b.dv, 1.0f}) {}

  Tensor forward(Exec& exec, const InnerInputs& in, State* state, SavedStack& saved,
                 const Queries& queries) const override {
    Saved f;
    f.decay = decay_.forward(exec, in), f.rate = rate_.forward(exec, in);
    const Shape shape{in.k.rows(), in.k.width()};
    f.alpha = exec.empty(shape, compute_), f.beta = exec.empty(shape, compute_),
    f.key = exec.empty(shape, compute_);
    kernels::rwkv7_keys_forward(exec, keys(in, f), f.alpha, f.beta, f.key);
    const Tensor out =
        recurrence_.forward(exec, inputs(in, f), in.rows.sequence, state, saved, queries);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    const Shape& shape = f.key.shape();
    const Tensor d_key = exec.empty(shape), d_alpha = exec.empty(shape), d_beta = exec.empty(shape),
                 d_decay = exec.empty(shape), d_rate = exec.empty(shape);
    recurrence_.backward(exec, inputs(in, f), in.rows.sequence, d_out, d_state,
                         {gradients.q, d_key, gradients.v, d_decay, d_alpha, d_beta}, saved);
    kernels::rwkv7_keys_backward(
        exec, keys(in, f), {d_alpha, d_beta, d_key, gradients.k, d_rate, k_k_.grad, k_a_.grad});
    decay_.backward(exec, in, f.decay, d_decay, gradients.x);
    rate_.backward(exec, in, f.rate, d_rate, gradients.x);
  }
  double flops_per_row() const override { return recurrence_.flops_per_token(); }
  double gate_flops() const override { return decay_.flops_per_row() + rate_.flops_per_row(); }

 private:
  struct Saved {
    MemoryGate::Saved decay, rate;  // rate: before its sigmoid
    Tensor alpha, beta, key;        // [rows, heads * dk]
  };
  // A deviation of zero, not zeros: tests put numbers in its place.
  static std::pair<Init, Init> lora() { return {Init::normal(0.0), Init::orthogonal(0.1)}; }
  static Parameter& vector(const InnerBuild& b, const char* name, const Init& start) {
    return b.build.declare({.name = b.build.scope + name,
                            .global = {b.heads * b.dk},
                            .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = b.dk}},
                            .init = start,
                            .weight_decay = false,
                            .f32 = true});
  }
  kernels::Rwkv7Keys keys(const InnerInputs& in, const Saved& f) const {
    return {heads_, in.k, f.rate.value, k_k_.value, k_a_.value};
  }
  static RankOneInputs inputs(const InnerInputs& in, const Saved& f) {
    return {in.q, f.key, in.v, f.decay.value, f.alpha, f.beta};
  }

  int64_t heads_;
  DType compute_;
  MemoryGate decay_, rate_;
  Parameter &k_k_, &k_a_;  // [heads * dk]
  RankOneRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_rwkv7(const InnerBuild& inner) {
  return std::make_unique<InnerRwkv7>(inner);
}

}  // namespace weft
