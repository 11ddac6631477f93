#include "layers/short_conv.h"

#include <cmath>

namespace weft {
namespace {

ConstView first(const State& state) { return state.empty() ? ConstView{} : ConstView(state[0]); }

Split split_of(const ShortConv::Options& o) {
  return {
      .dim = 0, .axis = Axis::kTensor, .blocks = o.blocks, .replicas = o.replicas, .unit = o.unit};
}

// Published layers leave weight and bias to PyTorch's start of a depthwise convolution.
Init start() {
  const double limit = 1.0 / std::sqrt(static_cast<double>(ShortConv::kTaps));
  return Init::uniform(-limit, limit);
}

Parameter& declare_weight(const Build& build, const std::string& name,
                          const ShortConv::Options& o) {
  return build.declare({.name = build.scope + name + ".weight",
                        .global = {o.channels, ShortConv::kTaps},
                        .splits = {split_of(o)},
                        .init = start(),
                        .f32 = true});
}

Parameter* declare_bias(const Build& build, const std::string& name, const ShortConv::Options& o) {
  if (!o.bias) return nullptr;
  return &build.declare({.name = build.scope + name + ".bias",
                         .global = {o.channels},
                         .splits = {split_of(o)},
                         .init = start(),
                         .weight_decay = false,
                         .f32 = true});
}

}  // namespace

ShortConv::ShortConv(const Build& build, const std::string& name, const Options& options)
    : name_(name),
      rule_(declare_weight(build, name, options), declare_bias(build, name, options), options) {}

void ShortConv::forward(Exec& exec, ConstView x, View y, const Sequence& sequence,
                        MixerState* state, SavedStack& saved) const {
  rule_.forward(exec, {x, y}, sequence, part_of(state, name_), saved);
}

void ShortConv::backward(Exec& exec, ConstView x, ConstView dy, View dx, const Sequence& sequence,
                         MixerState* d_state, SavedStack& saved) const {
  rule_.backward(exec, {x, {}}, sequence, dy, part_of(d_state, name_), {dx}, saved);
}

Tensor ShortConv::Rule::run(Exec& exec, const ConvInputs& in, const Sequence& sequence,
                            const State& entering, State* leaving, NothingKept&) const {
  if (leaving != nullptr) *leaving = fresh(exec, sequence);
  kernels::short_conv_forward(
      exec, {kTaps, activation_, sequence.documents}, in.x, weight_.value,
      bias_ == nullptr ? ConstView{} : ConstView(bias_->value), in.y,
      {first(entering), leaving == nullptr ? View{} : leaving->at(0).view()});
  return {};
}

void ShortConv::Rule::run_backward(Exec& exec, const ConvInputs& in, const Sequence& sequence,
                                   const NothingKept&, const State& entering, const Cotangents& d,
                                   const ConvGradients& gradients) const {
  if (d.d_entering != nullptr) *d.d_entering = fresh(exec, sequence);
  kernels::short_conv_backward(exec, {kTaps, activation_, sequence.documents}, in.x, weight_.value,
                               bias_ == nullptr ? ConstView{} : ConstView(bias_->value), d.d_out,
                               gradients.dx, weight_.grad,
                               bias_ == nullptr ? View{} : bias_->grad.view(),
                               {first(entering), first(d.d_leaving),
                                d.d_entering == nullptr ? View{} : d.d_entering->at(0).view()});
}

State ShortConv::Rule::state_gradient(Exec& exec, const ConvInputs& in, const Sequence& sequence,
                                      const NothingKept&, const State& entering,
                                      ConstView dy) const {
  const State d_entering = fresh(exec, sequence);
  const Tensor dx = exec.scratch(in.x.shape, in.x.dtype);
  const Tensor d_weight = exec.zeros(weight_.value.shape());
  const Tensor d_bias = bias_ == nullptr ? Tensor{} : exec.zeros(bias_->value.shape());
  kernels::short_conv_backward(exec, {kTaps, activation_, sequence.documents}, in.x, weight_.value,
                               bias_ == nullptr ? ConstView{} : ConstView(bias_->value), dy, dx,
                               d_weight, d_bias.defined() ? d_bias.view() : View{},
                               {first(entering), {}, d_entering[0]});
  return d_entering;
}

}  // namespace weft
