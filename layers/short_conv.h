#pragma once

#include <string>

#include "kernels/conv1d.h"
#include "layers/build.h"
#include "layers/sequence.h"

namespace weft {

// A depthwise causal convolution over the last `taps` tokens of the document, then silu.
//   x, y: [tokens, channels], rows may be strided   weight: [channels, taps]
// Keeps nothing: the caller holds x until backward. Tensor ranks share channels as they share the
// projection that makes them.
class ShortConv {
 public:
  static constexpr int64_t kTaps = 4;

  // `unit` channels stay together when the weight is cut: a head.
  ShortConv(const Build& build, const std::string& name, int64_t channels, int64_t unit);

  // history: the kTaps - 1 rows before each document, see kernels/conv1d.h; by default zeros enter.
  void forward(Exec& exec, const Sequence& sequence, ConstView x, View y,
               const kernels::ConvHistory& history = {}) const;
  // Adds into the weight's gradient.
  void backward(Exec& exec, const Sequence& sequence, ConstView x, ConstView dy, View dx,
                const kernels::ConvHistoryGradients& history = {}) const;

 private:
  Parameter& weight_;
};

}  // namespace weft
