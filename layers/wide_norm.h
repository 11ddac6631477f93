#pragma once

#include "layers/build.h"

namespace weft {

// RMSNorm over channels that are cut over the tensor ranks: over all of a row, or over `groups`
// equal runs of it.   x, y [tokens, channels here]   weight [channels] A group that several ranks
// hold parts of costs one sum over the ranks in each direction.
class WideNorm {
 public:
  // `channels` here, of which `unit` stay together; `groups` of the whole row, a multiple or a
  // divisor of the number of ranks.
  WideNorm(const Build& build, const std::string& name, int64_t channels, int64_t unit,
           int64_t groups, float epsilon);

  // inv_rms: [tokens, groups here], made here and needed by backward together with x
  Tensor forward(Exec& exec, const Tensor& x, const Tensor& y) const;
  void backward(Exec& exec, const Tensor& dy, const Tensor& x, const Tensor& inv_rms,
                const Tensor& dx) const;

 private:
  // Sums of the groups' parts, over the ranks that hold one.
  void sum(Exec& exec, const Tensor& parts) const;

  Parameter& weight_;
  int64_t groups_;      // here
  int64_t all_groups_;  // of the row
  int64_t width_;       // channels of a group, over all ranks
  float epsilon_;
  Communicator* ranks_;  // null: every group is whole here
};

}  // namespace weft
