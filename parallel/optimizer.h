#pragma once

#include "core/parameter.h"
#include "parallel/checkpoint.h"

namespace weft {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of the parameters whose spec asks for it
};

// AdamW over every parameter of a store that is not a buffer. Moments lie in arenas of their own, at the same offsets as the
// parameters. One rank holds all of them.
class Optimizer {
 public:
  Optimizer(ParameterStore& store, Ledger& ledger, const AdamOptions& options);

  // L2 norm of all gradients, each parameter counted once: squares are added up per parameter and these
  // sums in the order of names, so that placement changes no bit. Not finite when any gradient is not.
  double gradient_norm(Exec& exec) const;

  // One update with gradients times `grad_scale`; `step` counts updates from 1.
  void step(Exec& exec, double lr, double grad_scale, int64_t step);

  // The moments, as checkpoints hold them: adam/m/<name> and adam/v/<name>.
  std::vector<SavedTensor> saved_tensors() const;

 private:
  Tensor moment(const Arena& arena, const Parameter& p) const;

  ParameterStore& store_;
  AdamOptions options_;
  Arena m_, v_;
  std::vector<size_t> by_name_;  // indices of parameters, sorted by name
};

}  // namespace weft
