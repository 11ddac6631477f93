#include "layers/basic/linear.h"

#include <set>

#include "kernels/rows/elementwise.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/cast.h"

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
  const std::vector<const Parameter*> all(weights_.begin(), weights_.end());
  forward_ = Prepared<ForwardForms>(all);
  backward_ = Prepared<BackwardForms>(all);
  if (build.store.here()[Axis::kSequence].size > 1) {
    queries_ = options.queries;
    gate_ = options.gate;
  }
  if (options.bias == Bias::kNo) return;
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

Linear::Role Linear::role_of(int64_t column) const {
  const auto inside = [column](const Columns& c) {
    return column >= c.begin && column < c.begin + c.count;
  };
  if (inside(queries_)) return Role::kQueries;
  return inside(gate_) ? Role::kGate : Role::kNow;
}

std::vector<Linear::Piece> Linear::pieces(std::initializer_list<Columns> apart) const {
  std::set<int64_t> borders = {0, out_};
  for (const Columns& c : apart) {
    if (c.count > 0) borders.insert({c.begin, c.begin + c.count});
  }
  if (!parts_touch(weights_)) {
    int64_t row = 0;
    for (const Parameter* w : weights_) borders.insert(row += w->shape[0]);
  }
  std::vector<Piece> pieces;
  for (auto at = borders.begin(); std::next(at) != borders.end(); ++at) {
    pieces.push_back({{*at, *std::next(at) - *at}, role_of(*at)});
  }
  return pieces;
}

Tensor Linear::rows_of(const Columns& columns, Tensor Parameter::*what) const {
  if (parts_touch(weights_)) {
    const Tensor all = what == &Parameter::value ? joined_values(weights_) : joined_grads(weights_);
    return all.row_range(columns.begin, columns.count);
  }
  int64_t before = 0;
  for (Parameter* w : weights_) {
    if (columns.begin < before + w->shape[0]) {
      return (w->*what).row_range(columns.begin - before, columns.count);
    }
    before += w->shape[0];
  }
  WEFT_CHECK(columns.count == 0, "columns from {} of {}", columns.begin, out_);
  return {};
}

const Linear::ForwardForms& Linear::forward_forms(Exec& exec) const {
  return forward_.get([&] {
    ForwardForms forms;
    for (const Piece& piece : pieces({queries_, gate_})) {
      forms.emplace_back(piece,
                         kernels::PackedMatrices(exec, rows_of(piece.columns, &Parameter::value),
                                                 Transpose::kYes));
    }
    return forms;
  });
}

const Linear::BackwardForms& Linear::backward_forms(Exec& exec) const {
  return backward_.get([&] {
    BackwardForms forms;
    if (parts_touch(weights_)) {
      forms.emplace_back(exec, joined_values(weights_), Transpose::kNo);
      return forms;
    }
    for (const Parameter* w : weights_) forms.emplace_back(exec, w->value, Transpose::kNo);
    return forms;
  });
}

void Linear::multiply(Exec& exec, const Tensor& x, const Tensor& y, Role role) const {
  for (const auto& [piece, weight] : forward_forms(exec)) {
    if (piece.role != role) continue;
    kernels::gemm(exec, x, weight, y.view().columns(piece.columns.begin, piece.columns.count));
  }
  int64_t column = 0;
  for (const Parameter* bias : biases_) {
    if (role_of(column) == role) {
      kernels::add_bias(exec, bias->value, y.view().columns(column, bias->shape[0]));
    }
    column += bias->shape[0];
  }
}

void Linear::start_forward(Exec& exec, const Tensor& x, const Tensor& y, SavedStack& saved) const {
  multiply(exec, x, y, Role::kNow);
  saved.push(Saved{x});
}

Tensor Linear::begin_forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const {
  const Tensor y = exec.empty({x.shape().rows(), out_}, y_type);
  start_forward(exec, x, y, saved);
  return y;
}

void Linear::finish_queries(Exec& exec, const Tensor& x, const Tensor& y) const {
  if (queries_.count > 0) multiply(exec, x, y, Role::kQueries);
}

void Linear::finish_gate(Exec& exec, const Tensor& x, const Tensor& y) const {
  if (gate_.count > 0) multiply(exec, x, y, Role::kGate);
}

void Linear::forward_to(Exec& exec, const Tensor& x, const Tensor& y, SavedStack& saved) const {
  start_forward(exec, x, y, saved);
  finish_queries(exec, x, y);
  finish_gate(exec, x, y);
}

Tensor Linear::forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const {
  const Tensor y = exec.empty({x.shape().rows(), out_}, y_type);
  forward_to(exec, x, y, saved);
  return y;
}

void Linear::add_gradients(Exec& exec, const Tensor& dy, const Tensor& x, Among which) const {
  const auto wanted = [which](Role role) {
    return (role == Role::kGate) == (which == Among::kGate);
  };
  for (const auto& [columns, role] : pieces({gate_})) {
    if (!wanted(role)) continue;
    kernels::gemm(exec, dy.view().columns(columns.begin, columns.count), x,
                  rows_of(columns, &Parameter::grad),
                  {.a = Transpose::kYes, .write = Write::kAccumulate});
  }
  int64_t column = 0;
  for (Parameter* bias : biases_) {
    if (wanted(role_of(column))) {
      kernels::column_sum(exec, dy.view().columns(column, bias->shape[0]), bias->grad);
    }
    column += bias->shape[0];
  }
}

void Linear::begin_backward(Exec& exec, const Tensor& dy, const Tensor& x,
                            SavedStack& saved) const {
  if (gate_.count == 0) return;
  saved.weight_work(exec,
                    [this, dy, x](Exec& later) { add_gradients(later, dy, x, Among::kGate); });
}

Tensor Linear::backward(Exec& exec, const Tensor& dy, DType dx_type, SavedStack& saved) const {
  const auto [x] = saved.pop<Saved>();
  const int64_t tokens = x.shape().rows();
  const BackwardForms& forms = backward_forms(exec);
  const bool several = forms.size() > 1;
  Tensor dx = exec.empty({tokens, in_}, several ? DType::kF32 : dx_type);
  int64_t column = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    const kernels::PackedMatrices& w = forms[i];
    const ConstView part = dy.view().columns(column, w.k());
    kernels::gemm(exec, part, w, dx, i == 0 ? Write::kReplace : Write::kAccumulate);
    column += w.k();
  }
  saved.weight_work(exec,
                    [this, dy, x](Exec& later) { add_gradients(later, dy, x, Among::kOthers); });
  return in_type(exec, dx, dx_type);
}

}  // namespace weft
