#pragma once

#include <algorithm>

#include "kernels/routing/expert_order.h"
#include "kernels/routing/router.h"
#include "layers/basic/linear.h"
#include "layers/context/feed_forward.h"
#include "parallel/layout/layout.h"

namespace weft {

// Over which tokens the f of the balance loss is taken (P always follows the tokens at hand).
enum class AuxScope : uint8_t {
  kMicroBatch,   // the micro-batch
  kSequence,     // each sequence on its own; the loss is the mean over sequences
  kGlobalBatch,  // all tokens of the optimizer step before this one
};

enum class Balance : uint8_t { kLearned, kForced };

struct RouterOptions {
  kernels::Router rule;
  int64_t experts = 0;
  double aux_loss = 0.0;  // coefficient of the balance loss
  double z_loss = 0.0;    // coefficient of the z loss
  AuxScope scope = AuxScope::kMicroBatch;
  double bias_rate = 1e-3;  // kSigmoid: step of the bias
  double capacity = 0.0;    // rows of an expert over the mean; 0: all that come
  kernels::Keep keep = kernels::Keep::kFirst;
  Balance balance =
      Balance::kLearned;  // kForced: expert (n active + j) mod experts, for benchmarks
};

// Rows an expert takes of `tokens` tokens.
int64_t capacity_of(const RouterOptions& options, int64_t tokens);

// The tokens here as runs that the balance loss is taken over: token n is in run (first + n) /
// length.
struct TokenRuns {
  int64_t count = 1, first = 0, length = 0;
  // The tokens here of a run, where `tokens` are here.
  IndexRange of(int64_t run, int64_t tokens) const {
    return {std::clamp<int64_t>(run * length - first, 0, tokens),
            std::clamp<int64_t>((run + 1) * length - first, 0, tokens)};
  }
};

// Chooses experts for tokens. Logits, probabilities and weights are f32 whatever the compute
// precision. With f_e the share of all (token, choice) pairs that went to expert e, before any is
// dropped, and P_e the mean probability:
//   balance loss = aux_loss * experts * sum_e f_e P_e,     z loss = z_loss * mean(logsumexp^2)
class ExpertRouter {
 public:
  ExpertRouter(const Build& build, const RouterOptions& options);

  Routing forward(Exec& exec, const Tensor& x, StepContext& context) const;

  // Adds the gradient of x [tokens, hidden] f32 into dx, that of the weight into its gradient.
  void backward(Exec& exec, const Tensor& x, const Routing& routing, const Tensor& d_weight,
                const StepContext& context, const Tensor& dx) const;

  // With the counts of all tokens of the step: moves the bias of each expert by bias_rate towards
  // the mean load, and keeps the load for the next step's balance loss.
  void finish_step(Exec& exec, const std::vector<int64_t>& counts);

  const RouterOptions& options() const { return options_; }

 private:
  // Probabilities, index and weights, and what is noted of them.
  void decide(Exec& exec, const Tensor& logits, const StepContext& context, Routing& routing,
              const RoutingNotes& notes) const;
  Tensor fractions(Exec& exec, const Routing& routing, const StepContext& context) const;
  MoeReport report(Exec& exec, const Routing& routing, const RoutingNotes& notes,
                   const TokenRuns& runs) const;
  TokenRuns runs_of(const StepContext& context, int64_t tokens) const;

  RouterOptions options_;
  int64_t layer_;
  Parameter& weight_;  // [experts, hidden], f32
  Parameter* bias_;    // buffer [experts], f32: kSigmoid alone
  Parameter*
      load_;  // buffer [experts], f32: f of the step before, 0 before the first; kGlobalBatch
};

}  // namespace weft
