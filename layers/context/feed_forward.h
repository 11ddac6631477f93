#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/memory/exec.h"
#include "core/memory/saved.h"
#include "kernels/attention/attention.h"
#include "kernels/routing/expert_order.h"
#include "kernels/routing/router.h"
#include "parallel/expert_exchange.h"

namespace weft {

// Report of a mixture of experts (or of memories, in a mixer) on one forward pass. Plain numbers,
// added up by the trainer.
struct MoeReport {
  int64_t layer = 0;
  bool memories = false;      // of the layer's mixer, not of its experts
  double aux_weight = 0;      // memories: coefficient of their balance loss
  double aux = 0;             // balance loss without its coefficient
  double z = 0;               // z loss without its coefficient
  double router_entropy = 0;  // nats, mean over tokens
  // The closest choice of any token (kernels::Routed::margin): what is less than roundings may turn
  // out otherwise on other ranks. Infinite where all were given.
  double margin = std::numeric_limits<double>::infinity();
  std::vector<int64_t> counts = {};  // pairs per expert, before any is dropped
  int64_t dropped = 0;               // pairs beyond an expert's capacity
  int64_t bad_token = -1;            // first token whose router logits are not finite, or -1
};

// Blocks of forgetting attention that pruning left, of those that causality leaves; by head.
struct PruningReport {
  int64_t layer = 0;
  std::vector<kernels::BlockCount> heads = {};
};

// Where each token goes: decided once per token and layer, in f32, and never again, not even when
// activations are recomputed.
struct Routing {
  Tensor probabilities;  // [tokens, experts]
  Tensor index;          // i32 [tokens, active], best first
  Tensor weight;         // [tokens, active], of dropped pairs too
  Tensor log_sum_exp;    // [tokens]
  Tensor logits;         // [tokens, experts], where backward needs them (sigmoid)
  Tensor fraction;       // [runs, experts]: shares of pairs, constants for differentiation
  int64_t tokens = 0;    // of the micro-batch, over all ranks that share it
  kernels::ExpertOrder order;
  // Exchange between the ranks that share the experts; null where all experts are here.
  std::shared_ptr<const ExpertExchange> exchange = {};

  kernels::Routed views() const { return {probabilities, index, weight, log_sum_exp}; }
};

// Statistics of a routing by token, which are reported and not differentiated.
struct RoutingNotes {
  Tensor entropy, margin;  // f32 [tokens], as in kernels::Routed
  Tensor bad_token;        // i64 [1]

  static RoutingNotes of(Exec& exec, int64_t tokens) {
    return {exec.scratch({tokens}), exec.scratch({tokens}), exec.scratch({1}, DType::kI64)};
  }
  kernels::Routed with(const Routing& routing) const {
    kernels::Routed out = routing.views();
    out.entropy = entropy, out.margin = margin, out.bad_token = bad_token;
    return out;
  }
};

// The experts chosen for the tokens of a micro-batch, i32 [tokens, active], by layer.
using Choices = std::map<int64_t, Tensor>;

// State that the layers of a stage share during one micro-batch.
struct StepContext {
  float aux_scale = 1.0f;  // share of this micro-batch in the step's balance and z losses
  int64_t row_tokens = 0;  // tokens of one sequence in this rank's span; 0: the micro-batch is one
  // Tensor ranks hold parts of the span between layers (layers/basic/token_shards.h): where this
  // rank's starts, and the tokens of all, which blocks tell.
  int64_t first_token = 0, span_tokens = 0;
  // The ranks that hold the other tokens of this micro-batch: statistics of its tokens are summed
  // over them. Null: all tokens are here.
  Communicator* token_ranks = nullptr;
  // As token_ranks, for parts that every tensor rank computes for the whole span: mixers.
  Communicator* span_ranks = nullptr;
  // The ranks that share the experts, with tokens of their own each. Null: all experts are here.
  Communicator* expert_ranks = nullptr;
  Travel travel = Travel::kOncePerRank;
  Overlap overlap = Overlap::kOn;
  std::vector<MoeReport> reports = {};  // one per mixture of experts or memories, in layer order

  // Tensors that cross layers: the values of the first RWKV-7 layer, which the later ones mix with
  // theirs, and the gradient that they send back.
  Tensor first_value = {}, d_first_value = {};
  int64_t first_value_layer = -1;  // that set it, if it is one of this stage

  bool repeating = false;  // this forward pass is a second one: report nothing

  std::vector<PruningReport> pruning = {};  // one per layer that prunes

  // Recompute: forward leaves its decision in `decided`; a second forward finds it in `replay`,
  // uses it and reports nothing.
  std::optional<Routing> decided = {};
  std::optional<Routing> replay = {};

  // Routing traces: choices made elsewhere, whose weights and losses are still the router's own;
  // and the choices made here, where they are wanted.
  Choices given = {};
  std::optional<Choices> made = {};
  Choices given_memories = {};  // tests: the same for the memories of mixers

  // Tests: experts and weights chosen elsewhere (index and weight are read); probabilities and
  // losses are still the router's own.
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

  // After an optimizer step, with the report of all its tokens: what balances without a gradient.
  virtual void finish_step(Exec&, const MoeReport&) {}
};

}  // namespace weft
