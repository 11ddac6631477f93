#include <cmath>

#include "kernels/decay_gate.h"
#include "layers/memory/inner_rule.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

using kernels::Write;

// Published: xavier uniform with gain 2^{-5/2}.
Init gate_init(int64_t in, int64_t out) {
  const double limit = std::exp2(-2.5) * std::sqrt(6.0 / static_cast<double>(in + out));
  return Init::uniform(-limit, limit);
}

// Memories of gated linear attention: a decay per key channel from a gate of low rank.
class InnerGla final : public InnerRule {
 public:
  explicit InnerGla(const InnerBuild& b)
      : space_(b.space),
        compute_(b.build.compute),
        down_(b.build, b.space,
              {.name = "gk_proj.0",
               .shared_name = "shared_gk.0",
               .out = b.gate_rank,
               .in = b.build.hidden,
               .init = gate_init(b.build.hidden, b.gate_rank)}),
        up_(b.build, b.space,
            {.name = "gk_proj.1",
             .shared_name = "shared_gk.1",
             .out = b.heads * b.dk,
             .in = b.gate_rank,
             .unit = b.dk,
             .reads = MemoryLinear::Reads::kRows,
             .bias = true,
             .init = gate_init(b.gate_rank, b.build.whole(b.heads * b.dk))}),
        recurrence_({{b.heads, b.heads, b.dk, b.dv}, 1.0f / std::sqrt(static_cast<float>(b.dk))}) {}

  Tensor forward(Exec& exec, const InnerInputs& in, State* state,
                 SavedStack& saved) const override {
    Saved f;
    f.low = down_.forward(exec, in.x, in.rows, compute_);
    f.gate = up_.forward(exec, f.low, in.rows, DType::kF32);
    const Tensor computed = exec.empty(f.gate.shape());
    kernels::decay_gate_forward(exec, kGate, f.gate, computed);
    f.log_decay = space_.spread(exec, in.rows, computed);
    const Tensor out = recurrence_.forward(exec, inputs(in, f), in.rows.sequence, state, saved);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor d_decay = exec.empty(f.log_decay.shape());
    recurrence_.backward(exec, inputs(in, f), in.rows.sequence, d_out, d_state,
                         {gradients.q, gradients.k, gradients.v, d_decay}, saved);
    const Tensor d_computed = space_.collect(exec, in.rows, d_decay);
    const Tensor d_gate = exec.empty(f.gate.shape(), compute_);
    kernels::decay_gate_backward(exec, kGate, f.gate, d_computed, d_gate);
    const Tensor d_low = exec.empty(f.low.shape(), compute_);
    up_.backward(exec, d_gate, f.low, in.rows, d_low, Write::kReplace);
    down_.backward(exec, d_low, in.x, in.rows, gradients.x, Write::kAccumulate);
  }

  double flops_per_row() const override { return recurrence_.flops_per_token(); }
  double gate_flops() const override { return down_.flops_per_row() + up_.flops_per_row(); }

 private:
  struct Saved {
    Tensor low;        // [computed rows, gate_rank]
    Tensor gate;       // [computed rows, heads * dk] f32, before the logsigmoid
    Tensor log_decay;  // [rows, heads * dk] f32
  };
  static constexpr kernels::DecayGate kGate{.divisor = 16.0f};

  static DiagonalInputs inputs(const InnerInputs& in, const Saved& f) {
    return {in.q, in.k, in.v, f.log_decay};
  }

  MemorySpace space_;
  DType compute_;
  MemoryLinear down_, up_;
  DiagonalRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_gla(const InnerBuild& inner) {
  return std::make_unique<InnerGla>(inner);
}

}  // namespace weft
