#pragma once

#include "layers/basic/prepared_weight.h"
#include "layers/moe/expert_compute.h"

namespace weft {

// The weights of experts in the forms that products take.
class PackedExperts {
 public:
  explicit PackedExperts(const ExpertWeights& weights)
      : weights_(weights), in_(weights.in), down_(weights.down) {}

  const ExpertWeights& weights() const { return weights_; }

  const kernels::PackedMatrices& entering(Exec& exec, ExpertCompute::Pass pass) const {
    return pass == ExpertCompute::Pass::kForward ? in_.forward(exec) : down_.backward(exec);
  }
  const kernels::PackedMatrices& leaving(Exec& exec, ExpertCompute::Pass pass) const {
    return pass == ExpertCompute::Pass::kForward ? down_.forward(exec) : in_.backward(exec);
  }

 private:
  ExpertWeights weights_;
  PreparedWeight in_, down_;
};

}  // namespace weft
