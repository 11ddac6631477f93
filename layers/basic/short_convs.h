#pragma once

#include <optional>
#include <vector>

#include "layers/basic/short_conv.h"
#include "layers/context/mixer.h"

namespace weft {

// Short convolutions that a mixer makes together. The inputs that they look back to come from the
// sequence rank before in one message, which is under way from the constructor on; what needs none
// of their outputs can be done before finish(). (Where some rank has too few tokens, and with one
// rank, each is made for itself.)
class ConvsForward {
 public:
  struct Part {
    const ShortConv* conv;
    ConstView x;
    View y;
  };
  ConvsForward(Exec& exec, std::vector<Part> parts, const MixerContext& context);
  // Waits and convolves; pushes a frame for each part.
  void finish(Exec& exec, SavedStack& saved);

 private:
  std::vector<Part> parts_;
  const MixerContext& context_;
  RecomputeCache::Entry* cached_ = nullptr;
  std::optional<ShiftedStates> arriving_;
};

// Backward of the parts of one or more such forwards, in the order in which these finished.
class ConvsBackward {
 public:
  struct Part {
    const ShortConv* conv;
    ConstView x, dy;
    View dx;
  };
  ConvsBackward(Exec& exec, std::vector<Part> parts, const MixerContext& context,
                SavedStack& saved);
  // dx, and adds to the weights' gradients.
  void finish(Exec& exec);

 private:
  std::vector<Part> parts_;
  const MixerContext& context_;
  std::vector<State> entering_;
  std::optional<ShiftedStates> arriving_;
};

}  // namespace weft
