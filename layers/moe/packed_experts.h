#pragma once

#include "layers/moe/expert_compute.h"

namespace weft {

// The weights in the four forms products take, renewed when the optimizer has changed them.
class PackedExperts {
 public:
  explicit PackedExperts(const ExpertWeights& weights) : weights_(weights) {}

  const ExpertWeights& weights() const { return weights_; }

  const kernels::PackedMatrices& entering(Exec& exec, ExpertCompute::Pass pass) const {
    refresh(exec);
    return pass == ExpertCompute::Pass::kForward ? in_forward_ : down_backward_;
  }
  const kernels::PackedMatrices& leaving(Exec& exec, ExpertCompute::Pass pass) const {
    refresh(exec);
    return pass == ExpertCompute::Pass::kForward ? down_forward_ : in_backward_;
  }

 private:
  void refresh(Exec& exec) const {
    using kernels::Transpose;
    const uint64_t version = weights_.in.version + weights_.down.version;
    if (version_ == version) return;
    version_ = version;
    in_forward_ = {exec, weights_.in.value, Transpose::kYes};
    in_backward_ = {exec, weights_.in.value, Transpose::kNo};
    down_forward_ = {exec, weights_.down.value, Transpose::kYes};
    down_backward_ = {exec, weights_.down.value, Transpose::kNo};
  }

  ExpertWeights weights_;
  mutable kernels::PackedMatrices in_forward_, in_backward_, down_forward_, down_backward_;
  mutable uint64_t version_ = ~uint64_t{0};  // sum of both; none yet
};

}  // namespace weft
