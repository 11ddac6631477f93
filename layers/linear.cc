#include "layers/linear.h"

#include "kernels/elementwise.h"
#include "layers/convert.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

std::vector<Split> splits_of(Linear::Cut cut, const Linear::Part& part) {
  if (cut == Linear::Cut::kNone) return {};
  const bool rows = cut == Linear::Cut::kRows;
  return {Split{.dim = rows ? 0 : 1,
                .axis = Axis::kTensor,
                .blocks = rows ? part.blocks : std::vector<int64_t>{},
                .replicas = rows ? part.replicas : 1,
                .unit = part.unit}};
}

// Parts touch in the arena when every part but the last fills whole alignment units.
bool parts_touch(const std::vector<Parameter*>& weights) {
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    if (weights[i]->offset + weights[i]->shape.elements() != weights[i + 1]->offset) return false;
  }
  return true;
}

}  // namespace

Linear::Linear(const Build& build, std::vector<Part> parts, int64_t in, const Options& options)
    : in_(in) {
  for (const Part& part : parts) {
    weights_.push_back(
        &build.declare({.name = build.scope + part.name + (part.bare ? "" : ".weight"),
                        .global = {part.rows, in},
                        .splits = splits_of(options.cut, part),
                        .partial_over = options.partial_over,
                        .init = options.init,
                        .weight_decay = options.weight_decay}));
    out_ += weights_.back()->shape[0];
  }
  if (build.store.here()[Axis::kSequence].size > 1) apart_ = static_cast<size_t>(options.apart);
  if (options.bias == Bias::kNo) return;
  WEFT_CHECK(apart_ == 0, "parts with a bias do not stand apart: {}", parts[0].name);
  for (const Part& part : parts) {
    const Cut cut = options.cut == Cut::kRows ? Cut::kRows : Cut::kNone;
    biases_.push_back(&build.declare({.name = build.scope + part.name + ".bias",
                                      .global = {part.rows},
                                      .splits = splits_of(cut, part),
                                      .partial_over = options.partial_over,
                                      .init = options.bias_init,
                                      .weight_decay = false,
                                      .f32 = true}));
  }
}

void Linear::refresh(Exec& exec) const {
  uint64_t version = 0;
  for (const Parameter* w : weights_) version += w->version;
  if (packed_version_ == version) return;
  packed_version_ = version;
  forward_.clear();
  backward_.clear();
  const auto together = weights_.end() - static_cast<std::ptrdiff_t>(apart_);
  if (parts_touch(weights_)) {
    const auto pack = [&](auto begin, auto end) {
      if (begin != end) forward_.emplace_back(exec, joined_values({begin, end}), Transpose::kYes);
    };
    pack(weights_.begin(), together);
    apart_from_ = forward_.size();
    pack(together, weights_.end());
    backward_.emplace_back(exec, joined_values(weights_), Transpose::kNo);
  } else {
    apart_from_ = weights_.size() - apart_;
    for (const Parameter* w : weights_) {
      forward_.emplace_back(exec, w->value, Transpose::kYes);
      backward_.emplace_back(exec, w->value, Transpose::kNo);
    }
  }
}

void Linear::multiply(Exec& exec, const Tensor& x, const Tensor& y, size_t begin,
                      size_t end) const {
  int64_t column = 0;
  for (size_t i = 0; i < end; ++i) {
    if (i >= begin) kernels::gemm(exec, x, forward_[i], y.view().columns(column, forward_[i].n()));
    column += forward_[i].n();
  }
}

void Linear::add_biases(Exec& exec, const Tensor& y) const {
  int64_t column = 0;
  for (const Parameter* bias : biases_) {
    kernels::add_bias(exec, bias->value, y.view().columns(column, bias->shape[0]));
    column += bias->shape[0];
  }
}

Tensor Linear::begin_forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const {
  refresh(exec);
  const Tensor y = exec.empty({x.shape().rows(), out_}, y_type);
  multiply(exec, x, y, 0, apart_from_);
  if (apart_ == 0) add_biases(exec, y);
  saved.push(Saved{x});
  return y;
}

void Linear::finish_forward(Exec& exec, const Tensor& x, const Tensor& y) const {
  multiply(exec, x, y, apart_from_, forward_.size());
}

Tensor Linear::forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const {
  const Tensor y = begin_forward(exec, x, y_type, saved);
  finish_forward(exec, x, y);
  return y;
}

void Linear::add_gradients(Exec& exec, const Tensor& dy, const Tensor& x) const {
  const bool several = backward_.size() > 1;
  int64_t column = 0;
  for (size_t i = 0; i < backward_.size(); ++i) {
    const ConstView part = dy.view().columns(column, backward_[i].k());
    const Tensor grad = several ? weights_[i]->grad : joined_grads(weights_);
    kernels::gemm(exec, part, x, grad, {.a = Transpose::kYes, .write = Write::kAccumulate});
    column += backward_[i].k();
  }
  column = 0;
  for (Parameter* bias : biases_) {
    kernels::column_sum(exec, dy.view().columns(column, bias->shape[0]), bias->grad);
    column += bias->shape[0];
  }
}

Tensor Linear::backward(Exec& exec, const Tensor& dy, DType dx_type, SavedStack& saved) const {
  const auto [x] = saved.pop<Saved>();
  const int64_t tokens = x.shape().rows();
  const bool several = backward_.size() > 1;
  Tensor dx = exec.empty({tokens, in_}, several ? DType::kF32 : dx_type);
  int64_t column = 0;
  for (size_t i = 0; i < backward_.size(); ++i) {
    const kernels::PackedMatrices& w = backward_[i];
    const ConstView part = dy.view().columns(column, w.k());
    kernels::gemm(exec, part, w, dx, i == 0 ? Write::kReplace : Write::kAccumulate);
    column += w.k();
  }
  saved.weight_work(exec, [this, dy, x](Exec& later) { add_gradients(later, dy, x); });
  return in_type(exec, dx, dx_type);
}

}  // namespace weft
