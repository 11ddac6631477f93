#pragma once

#include <memory>
#include <vector>

#include "core/parameter.h"
#include "kernels/matrix/gemm.h"

namespace weft {

// Something that is computed from weights, again whenever the optimizer has given one of them
// another version. Not for two threads at once.
template <class Form>
class Prepared {
 public:
  Prepared() = default;
  explicit Prepared(std::vector<const Parameter*> weights)
      : weights_(std::move(weights)), kept_(std::make_unique<Kept>()) {}

  template <class Make>
  const Form& get(Make make) const {
    uint64_t version = 0;
    for (const Parameter* weight : weights_) version += weight->version;
    if (kept_->version != version) {
      kept_->form = {};  // the old memory goes before new memory is asked for
      kept_->form = make();
      kept_->version = version;
    }
    return kept_->form;
  }

 private:
  struct Kept {
    Form form;
    uint64_t version = ~uint64_t{0};  // sum of the weights' versions; none yet
  };
  std::vector<const Parameter*> weights_;
  std::unique_ptr<Kept> kept_;  // follows from the weights, so that a const layer may renew it
};

// A weight W [out, in], or several, [groups, out, in], in the forms that products take: W^T for y =
// x W^T, W for dx = dy W. Either is made when it is first used: generation never makes the second.
class PreparedWeight {
 public:
  explicit PreparedWeight(const Parameter& weight)
      : weight_(&weight), forward_({&weight}), backward_({&weight}) {}

  const kernels::PackedMatrices& forward(Exec& exec) const {
    return forward_.get([&] { return packed(exec, kernels::Transpose::kYes); });
  }
  const kernels::PackedMatrices& backward(Exec& exec) const {
    return backward_.get([&] { return packed(exec, kernels::Transpose::kNo); });
  }

 private:
  kernels::PackedMatrices packed(Exec& exec, kernels::Transpose transpose) const {
    return {exec, weight_->value, transpose};
  }

  const Parameter* weight_;
  Prepared<kernels::PackedMatrices> forward_, backward_;
};

}  // namespace weft
