#pragma once

#include "kernels/router.h"
#include "layers/feed_forward.h"
#include "layers/linear.h"

namespace weft {

struct RouterOptions {
  kernels::Router rule;
  int64_t experts = 0;
  double aux_loss = 0.0;  // coefficient of the balance loss
  double z_loss = 0.0;    // coefficient of the z loss
};

// Chooses experts for tokens. Logits, probabilities and weights are f32 whatever the compute precision.
// With f_e the share of all (token, choice) pairs that went to expert e and P_e the mean probability:
//   balance loss = aux_loss * experts * sum_e f_e P_e,     z loss = z_loss * mean(logsumexp^2)
class ExpertRouter {
 public:
  ExpertRouter(const Build& build, const RouterOptions& options);

  Routing forward(Exec& exec, const Tensor& x, StepContext& context) const;

  // Adds the gradient of x [tokens, hidden] f32 into dx, that of the weight into its gradient.
  void backward(Exec& exec, const Tensor& x, const Routing& routing, const Tensor& d_weight,
                const StepContext& context, const Tensor& dx) const;

  const RouterOptions& options() const { return options_; }

 private:
  void report(Exec& exec, const Routing& routing, int64_t bad_token, StepContext& context) const;

  RouterOptions options_;
  int64_t layer_;
  Parameter& weight_;  // [experts, hidden], f32
};

}  // namespace weft
