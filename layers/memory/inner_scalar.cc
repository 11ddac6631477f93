#include <cmath>

#include "layers/memory/inner_rule.h"
#include "layers/recurrence/fixed_decays.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

// Memories that decay by a fixed number per head, or not at all: no gates.
class InnerScalar final : public InnerRule {
 public:
  InnerScalar(const InnerBuild& b, float scale, std::vector<float> log_decay)
      : heads_(b.heads),
        log_decay_(std::move(log_decay)),
        recurrence_({{b.heads, b.heads, b.dk, b.dv}, scale, false}) {}

  Tensor forward(Exec& exec, const InnerInputs& in, State* state,
                 SavedStack& saved) const override {
    return recurrence_.forward(exec, inputs(in), in.rows.sequence, state, saved);
  }
  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    recurrence_.backward(exec, inputs(in), in.rows.sequence, d_out, d_state,
                         {gradients.q, gradients.k, gradients.v, {}}, saved);
  }
  double flops_per_row() const override { return recurrence_.flops_per_token(); }

 private:
  ScalarInputs inputs(const InnerInputs& in) const {
    ScalarInputs out{in.q, in.k, in.v, {}};
    if (!log_decay_.empty()) {
      out.log_decay = {log_decay_.data(), {heads_}, heads_, DType::kF32, {}};
    }
    return out;
  }

  int64_t heads_;
  std::vector<float> log_decay_;  // per head; empty: none
  ScalarRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_scalar(const InnerBuild& inner, const std::string& name) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(inner.dk));
  if (name == "lightning") {
    return std::make_unique<InnerScalar>(inner, 1.0f, inner.here.here(alibi_log_decays(inner.here.all_heads)));
  }
  if (name == "retnet") {
    return std::make_unique<InnerScalar>(inner, scale, inner.here.here(retnet_log_decays(inner.here.all_heads)));
  }
  WEFT_CHECK(name == "bla", "memories of {}", name);
  return std::make_unique<InnerScalar>(inner, scale, std::vector<float>{});
}

}  // namespace weft
