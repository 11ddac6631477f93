#pragma once

#include "layers/context/build.h"

namespace weft {

// RMSNorm over channels that are cut over the tensor ranks: over all of a row, or over `groups`
// equal runs of it.   x, y [tokens, channels here]   weight [channels] A group that several ranks
// hold parts of costs one sum over the ranks in each direction.
class WideNorm {
 public:
  struct Variant {
    int replicas = 1;     // neighbouring ranks that hold the same channels, of one group alone
    float offset = 0.0f;  // added to the weight
  };
  // `channels` here, of which `unit` stay together; `groups` of the whole row, a multiple or a
  // divisor of the number of ranks.
  WideNorm(const Build& build, const std::string& name, int64_t channels, int64_t unit,
           int64_t groups, float epsilon, const Variant& variant);
  WideNorm(const Build& build, const std::string& name, int64_t channels, int64_t unit,
           int64_t groups, float epsilon)
      : WideNorm(build, name, channels, unit, groups, epsilon, Variant{}) {}

  // inv_rms: [tokens, groups here], made here and needed by backward together with x. Where ranks
  // hold the same channels, dy and dx are parts of sums over them.
  Tensor forward(Exec& exec, const Tensor& x, const Tensor& y) const;
  void backward(Exec& exec, const Tensor& dy, const Tensor& x, const Tensor& inv_rms,
                const Tensor& dx) const;

 private:
  // Sums of the groups' parts, over the ranks that hold one.
  void sum(Exec& exec, const Tensor& parts) const;
  Tensor scale(Exec& exec) const;  // the weight with its offset

  Parameter& weight_;
  int64_t groups_;      // here
  int64_t all_groups_;  // of the row
  int64_t width_;       // channels of a group, over all ranks
  float epsilon_;
  Variant variant_;
  Communicator* ranks_;  // null: every group is whole here
};

}  // namespace weft
