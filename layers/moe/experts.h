#pragma once

#include "layers/context/feed_forward.h"
#include "layers/moe/expert_compute.h"

namespace weft {

// Which experts see which rows, and what their outputs count.
struct ExpertPairs {
  ExpertPairs(const Routing& routing) : order(routing.order), weight(routing.weight) {}
  ExpertPairs(const ExpertExchange& there) : order(there.order), weight(there.weight) {}
  const kernels::ExpertOrder& order;
  const Tensor& weight;  // f32 [rows, choices]
};

// The experts' feed-forward layers over the rows that chose them.
//   f_e(x) = w_down_e a(w_in_e x),     y_n = sum_k w_nk f_{e(n,k)}(x_n),     a:
//   kernels/gates/ffn_activation.h
//
// The router's weight is folded into the hidden row before the down projection: then its output is
// summed as it is and not kept, and the weight's gradient is a dot product of the hidden row and
// its gradient. Gathered rows of x live no longer than a product (grouped: not at all).
//
// Kept from forward to backward, per token, with s bytes of the compute type, K active experts of
// width F, g = 2 with a gate and 1 without:
//   x        s * hidden       shared with the router and the norm before
//   pre      s * K * g * F    the pre-activations; their gradient takes their place in backward
// block_sparse also keeps the padding: s * g * F * (kExpertBlock - 1) per expert at most. Halving F
// and doubling K changes nothing here; the router keeps 4 (E + 4 K + 1) bytes per token beside it.
class Experts {
 public:
  struct Saved {
    Tensor x, pre;
  };
  struct Gradients {
    Tensor dx;        // [rows, hidden]
    Tensor d_weight;  // [rows, choices] f32
  };

  Experts(const Build& build, int64_t experts, int64_t width);
  // Over weights that are declared already, in a way of the caller's choice: for comparisons.
  Experts(const ExpertWeights& weights, kernels::FfnActivation activation, DType compute_type,
          std::unique_ptr<ExpertCompute> compute);

  // x, dy [rows, hidden]: tokens, or what came of them from the ranks that own them. Sums over the
  // experts of a row are formed in f32 and given as `result`.
  Tensor forward(Exec& exec, const Tensor& x, const ExpertPairs& pairs, SavedStack& saved,
                 DType result = DType::kF32) const;
  Gradients backward(Exec& exec, const Tensor& dy, const ExpertPairs& pairs, SavedStack& saved,
                     DType result = DType::kF32) const;

  double flops_per_pair() const;  // forward
  ExpertWeights weights() const { return {in_, down_}; }

 private:
  Tensor scale_of(Exec& exec, const ExpertRows& rows, const ExpertPairs& pairs) const;

  kernels::FfnActivation activation_;
  Parameter&
      in_;  // w_gate_up [experts, 2 ffn, hidden], gate rows first, or w_up [experts, ffn, hidden]
  Parameter& down_;  // [experts, hidden, ffn]
  DType compute_type_;
  std::unique_ptr<ExpertCompute> compute_;
};

}  // namespace weft
