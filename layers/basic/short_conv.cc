#include "layers/basic/short_conv.h"

#include <algorithm>
#include <cmath>

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

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
      {given(entering), leaving == nullptr ? View{} : leaving->at(0).view()});
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
                               {given(entering), given(d.d_leaving),
                                d.d_entering == nullptr ? View{} : d.d_entering->at(0).view()});
}

// Only the first tokens of a document see what entered it; and only documents that other ranks
// began had something enter.
State ShortConv::Rule::state_gradient(Exec& exec, const ConvInputs& in, const Sequence& sequence,
                                      const NothingKept&, const State& entering,
                                      ConstView dy) const {
  const State d_entering = start(exec, sequence.count());
  std::vector<int32_t> documents = {0};
  std::vector<int64_t> which;
  for (const Chain& chain : sequence.chains) {
    const auto d = static_cast<size_t>(chain.first);
    const int32_t tokens = sequence.documents[d + 1] - sequence.documents[d];
    if (!chain.continues || tokens == 0) continue;
    which.push_back(chain.first);
    documents.push_back(documents.back() + std::min(tokens, static_cast<int32_t>(kTaps) - 1));
  }
  if (which.empty()) return d_entering;
  const int64_t width = in.x.width(), rows = documents.back(),
                count = static_cast<int64_t>(which.size());
  const Tensor x = exec.scratch({rows, width}, in.x.dtype),
               d = exec.scratch({rows, width}, dy.dtype), dx = exec.scratch({rows, width}),
               before = exec.scratch({count, kTaps - 1, width}),
               d_before = exec.scratch({count, kTaps - 1, width});
  for (size_t i = 0; i < which.size(); ++i) {
    const int64_t n = documents[i + 1] - documents[i],
                  from = sequence.documents[static_cast<size_t>(which[i])];
    kernels::copy(exec, in.x.row_range(from, n), x.row_range(documents[i], n));
    kernels::copy(exec, dy.row_range(from, n), d.row_range(documents[i], n));
    kernels::copy(exec, entering[0].row(which[i]), before.row(static_cast<int64_t>(i)));
  }
  const Tensor d_weight = exec.zeros(weight_.value.shape()),
               d_bias = bias_ == nullptr ? Tensor{} : exec.zeros(bias_->value.shape());
  kernels::short_conv_backward(exec, {kTaps, activation_, documents}, x, weight_.value,
                               bias_ == nullptr ? ConstView{} : ConstView(bias_->value), d, dx,
                               d_weight, d_bias.defined() ? d_bias.view() : View{},
                               {before, {}, d_before});
  for (size_t i = 0; i < which.size(); ++i) {
    kernels::copy(exec, d_before.row(static_cast<int64_t>(i)), d_entering[0].row(which[i]));
  }
  return d_entering;
}

}  // namespace weft
