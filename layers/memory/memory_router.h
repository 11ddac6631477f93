#pragma once

#include "layers/context/build.h"
#include "layers/context/feed_forward.h"

namespace weft {

struct MemoryOptions {
  int64_t memories = 4;  // that are routed to
  int64_t top_k = 2;
  bool shared = true;      // one more memory, which every token goes to with weight 1
  double aux_loss = 0.01;  // coefficient of the balance loss

  int64_t all() const { return memories + (shared ? 1 : 0); }
};

// The memories a token goes to, the shared one last, in f32.
struct MemoryRouting {
  Routing routed;  // without an order
  Tensor index;    // i32 [tokens, top_k (+ 1)]
  Tensor weight;   // [tokens, top_k (+ 1)]
};

// p = softmax(router x); the top_k largest, ties to the lower index, weighed by their share of
// their sum. With f_e the share of tokens that went to memory e (their sum is top_k) and P_e the
// mean of p:   balance loss = aux_loss * memories * sum_e f_e P_e
class MemoryRouter {
 public:
  MemoryRouter(const Build& build, const MemoryOptions& options);

  // Without a step nothing is reported.
  MemoryRouting forward(Exec& exec, const Tensor& x, StepContext* step) const;
  // d_weight [tokens, top_k (+ 1)]; adds into dx [tokens, hidden] f32 and the weight's gradient.
  // The balance loss has a gradient where there is a step.
  void backward(Exec& exec, const Tensor& x, const MemoryRouting& routing, const Tensor& d_weight,
                const StepContext* step, const Tensor& dx) const;

 private:
  kernels::Router rule() const {
    return {.mode = kernels::RouterMode::kSoftmax, .renormalize = true, .active = options_.top_k};
  }
  Routing decide(Exec& exec, const Tensor& x, StepContext* step) const;
  MoeReport report(Exec& exec, const Routing& routing, const RoutingNotes& notes) const;

  MemoryOptions options_;
  int64_t layer_;
  double tensor_ranks_;  // each of which adds its part of the gradient
  bool first_;           // of them
  Parameter& weight_;    // [memories, hidden], f32
};

}  // namespace weft
