#include "layers/short_conv.h"

#include <cmath>

namespace weft {
namespace {

kernels::ShortConv conv_of(const Sequence& sequence) {
  return {.taps = ShortConv::kTaps,
          .activation = kernels::Activation::kSilu,
          .documents = sequence.documents};
}

}  // namespace

ShortConv::ShortConv(const Build& build, const std::string& name, int64_t channels, int64_t unit)
    : weight_(
          build.store.declare({.name = build.scope + name + ".weight",
                               .global = {channels, kTaps},
                               .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = unit}},
                               .init = Init::uniform(-1.0 / std::sqrt(static_cast<double>(kTaps)),
                                                     1.0 / std::sqrt(static_cast<double>(kTaps))),
                               .f32 = true})) {}

void ShortConv::forward(Exec& exec, const Sequence& sequence, ConstView x, View y,
                        const kernels::ConvHistory& history) const {
  kernels::short_conv_forward(exec, conv_of(sequence), x, weight_.value, {}, y, history);
}

void ShortConv::backward(Exec& exec, const Sequence& sequence, ConstView x, ConstView dy, View dx,
                         const kernels::ConvHistoryGradients& history) const {
  kernels::short_conv_backward(exec, conv_of(sequence), x, weight_.value, {}, dy, dx, weight_.grad,
                               {}, history);
}

}  // namespace weft
