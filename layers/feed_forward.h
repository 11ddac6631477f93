#pragma once

#include <optional>
#include <vector>

#include "core/exec.h"
#include "core/saved.h"
#include "kernels/router.h"

namespace weft {

// What a mixture of experts reports of one forward pass. Plain numbers, summed by the trainer.
struct MoeReport {
  int64_t layer = 0;
  double aux = 0;                // balance loss without its coefficient
  double z = 0;                  // z loss without its coefficient
  double router_entropy = 0;     // nats, mean over tokens
  std::vector<int64_t> counts = {};   // pairs per expert
  int64_t bad_token = -1;        // first token whose router logits are not finite, or -1
};

// Where each token goes: decided once per token and layer, in f32, and never again, not even when
// activations are recomputed.
struct Routing {
  Tensor probabilities;  // [tokens, experts]
  Tensor index;          // i32 [tokens, active], best first
  Tensor weight;         // [tokens, active]
  Tensor log_sum_exp;    // [tokens]
  Tensor fraction;       // [experts]: share of all pairs, a constant for differentiation
  kernels::ExpertOrder order;
};

// What the layers of a stage share during one micro-batch.
struct StepContext {
  float aux_scale = 1.0f;          // share of this micro-batch in the step's balance and z losses
  std::vector<MoeReport> reports = {};  // one per mixture of experts, in layer order

  // Recompute: forward leaves its decision in `decided`; a second forward finds it in `replay`, uses it
  // and reports nothing.
  std::optional<Routing> decided = {};
  std::optional<Routing> replay = {};

  // Tests and benchmarks: experts and weights chosen elsewhere (index and weight are read; without a weight it is the router's own);
  // probabilities and losses are still the router's own.
  std::optional<Routing> fixed_choice = {};
};

// The second half of a block.   x: [tokens, hidden] compute type  ->  [tokens, hidden] f32
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual Tensor forward(Exec& exec, const Tensor& x, StepContext& context,
                         SavedStack& saved) const = 0;
  // dy f32 -> dx f32; adds into the weights' gradients.
  virtual Tensor backward(Exec& exec, const Tensor& dy, const StepContext& context,
                          SavedStack& saved) const = 0;
  virtual double flops_per_token() const = 0;  // forward, multiply and add counted apart
};

}  // namespace weft
