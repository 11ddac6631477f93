#include "tests/support/training_bounds.h"

#include <algorithm>
#include <cmath>

namespace weft::test {

TrainingBounds::TrainingBounds(const Config& config, const std::vector<StepResult>& steps) {
  constexpr double kSumsPerLayer = 8;
  const double u = std::ldexp(1.0, -24);
  const auto terms = static_cast<double>(config.train.global_batch * config.train.sequence),
             sums = 2 * kSumsPerLayer * static_cast<double>(config.model.layers);
  const double apart = u * std::sqrt(terms * sums);
  const double gain = config.optimizer.lr / config.optimizer.eps;
  moved_ = 0;
  for (const StepResult& step : steps) {
    loss_.push_back(apart + step.grad_norm * moved_ / step.loss);
    const double clip = config.optimizer.clip;
    moved_ += gain * apart * (clip > 0 ? std::min(clip, step.grad_norm) : step.grad_norm);
  }
}

}  // namespace weft::test
