#pragma once

#include <optional>

#include "layers/moe/experts.h"
#include "layers/moe/router.h"
#include "layers/moe/shared_expert.h"

namespace weft {

struct MoeOptions {
  RouterOptions router;
  int64_t width = 0;         // of one expert
  int64_t shared_width = 0;  // of the always-on expert; 0: none
  SharedGate shared_gate = SharedGate::kNone;
};

// Mixture of experts: every token is computed by the experts its router row chose (but for pairs
// beyond an expert's capacity, where there is one) and by the shared expert, if there is one.
//
// Where ranks share the experts (StepContext::expert_ranks), tokens travel to them and their
// outputs back (parallel/expert_exchange.h), gradients likewise, while this rank computes
// (StepContext::overlap): the shared expert, in forward half of it on either way, in backward all
// of it on the way there; on the way back what the experts' own weights need.
class Moe final : public FeedForward {
 public:
  Moe(const Build& build, const MoeOptions& options);

  Tensor forward(Exec& exec, const Tensor& x, StepContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const StepContext& context,
                  SavedStack& saved) const override;
  double flops_per_token() const override;
  void finish_step(Exec& exec, const MoeReport& step) override {
    router_.finish_step(exec, step.counts);
  }

 private:
  struct Saved {
    Tensor x;
    Routing routing;
  };
  Communicator& expert_ranks(const StepContext& context) const;
  const ExpertExchange& exchange_of(Exec& exec, Routing& routing, StepContext& context) const;
  Tensor forward_there(Exec& exec, const Tensor& x, Routing& routing, StepContext& context,
                       SavedStack& saved) const;
  Experts::Gradients backward_there(Exec& exec, const Tensor& dy, const Routing& routing,
                                    const StepContext& context, Tensor& d_shared,
                                    SavedStack& saved) const;

  MoeOptions options_;
  int64_t hidden_;
  DType compute_type_;
  int expert_ranks_, width_ranks_;  // over which experts, and the width of each, are cut
  ExpertRouter router_;
  Experts experts_;
  std::optional<SharedExpert> shared_;
};

}  // namespace weft
