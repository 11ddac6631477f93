#pragma once

#include <limits>
#include <vector>

#include "core/config/run_config.h"
#include "launcher/train/trainer.h"

namespace weft::test {

// Largest distance of two trainings that form the same sums in different orders: to first order in
// the roundings, errors of independent sums added up as squares. With u = 2^-24:
//
//   a sum of n terms            u sqrt(n) of its size; the longest one has the step's tokens as
//   terms what has passed the model   apart = u sqrt(n c): c sums one after the other, eight in a
//   layer (two
//                               norms, in and out of the mixer, the mixer itself, up and down in
//                               the feed-forward, its experts together), as many again in a
//                               backward
//   weights before step s       moved(s) = lr / epsilon * apart * sum over the steps r < s of
//   |g_r|,
//                               clipped: Adam's lr m / (sqrt(v) + epsilon) is at most as steep as
//                               that
//   the loss of step s          apart + |g_s| moved(s) / loss, of its size
//
// The effect of curvature on moved(s) is neglected, so the bound of gradient norms is a chosen
// number: see expect_same_training.
class TrainingBounds {
 public:
  TrainingBounds() = default;  // nothing is known
  TrainingBounds(const Config& config, const std::vector<StepResult>& steps);

  double loss(size_t step) const {
    return step < loss_.size() ? loss_[step] : kUnknown;
  }                                          // relative
  double weights() const { return moved_; }  // absolute, after the last step

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  std::vector<double> loss_;
  double moved_ = kUnknown;
};

}  // namespace weft::test
