#include "layers/mixers/linear_gates.h"

#include "kernels/gates/activation.h"
#include "kernels/gates/decay_gate.h"
#include "kernels/gates/head_decay.h"
#include "kernels/gates/ssm.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/cast.h"

namespace weft {
namespace {

using kernels::Activation;
using Map = GateSpec::Map;

kernels::DecayGate decay_gate(const GateSpec& spec) {
  using Kind = kernels::DecayGate::Kind;
  return {.kind = spec.map == Map::kMinusExp ? Kind::kMinusExp : Kind::kLogSigmoid,
          .divisor = spec.factor,
          .floor = spec.floor};
}

}  // namespace

Parameter& declare_head_vector(const Build& build, const std::string& name, const HeadGroup& heads,
                               int64_t width, const Init& init) {
  return build.declare({.name = build.scope + name,
                        .global = {heads.count * width},
                        .splits = {heads.split(width)},
                        .init = init,
                        .weight_decay = false,
                        .f32 = true});
}

void GateMap::declare(const Build& build, const HeadGroup& heads) {
  if (spec_.bias == GateSpec::Bias::kExact) {
    bias_ = &declare_head_vector(build, spec_.weight_name() + ".bias", heads, spec_.width,
                                 spec_.bias_init);
  }
  if (spec_.map == Map::kHeadDecay) {
    a_log_ =
        &declare_head_vector(build, "A_log", heads, 1, Init::log_of_uniform(spec_.slowest, 16.0));
  }
  if (spec_.map != Map::kHeadDecay && spec_.map != Map::kTimeStep) return;
  dt_bias_ =
      &declare_head_vector(build, "dt_bias", heads, spec_.width, Init::time_step(1e-3, 1e-1));
}

void GateMap::forward(Exec& exec, View raw, View value) const {
  if (bias_ != nullptr) kernels::add_bias(exec, bias_->value, raw);
  switch (spec_.map) {
    case Map::kPlain: kernels::copy(exec, raw, value); break;
    case Map::kSigmoid:
      kernels::activation_forward(exec, Activation::kSigmoid, raw, value);
      if (spec_.factor != 1.0f) kernels::scale(exec, value, spec_.factor, value);
      break;
    case Map::kMinusExp:
    case Map::kLogSigmoid: kernels::decay_gate_forward(exec, decay_gate(spec_), raw, value); break;
    case Map::kHeadDecay:
      kernels::head_decay_forward(exec, {raw, a_log_->value, dt_bias_->value}, value);
      break;
    case Map::kTimeStep: kernels::time_step_forward(exec, raw, dt_bias_->value, value); break;
    case Map::kCapped:
      kernels::scale(exec, raw, 1.0f / spec_.factor, raw);
      kernels::activation_forward(exec, Activation::kTanh, raw, value);
      kernels::scale(exec, value, spec_.factor, value);
  }
}

void GateMap::backward(Exec& exec, ConstView raw, View d_value, View d_raw) const {
  switch (spec_.map) {
    case Map::kPlain: kernels::copy(exec, d_value, d_raw); break;
    case Map::kSigmoid:
      if (spec_.factor != 1.0f) kernels::scale(exec, d_value, spec_.factor, d_value);
      kernels::activation_backward(exec, Activation::kSigmoid, raw, d_value, d_raw);
      break;
    case Map::kLogSigmoid:
    case Map::kMinusExp:
      kernels::decay_gate_backward(exec, decay_gate(spec_), raw, d_value, d_raw);
      break;
    case Map::kHeadDecay:
      kernels::head_decay_backward(exec, {raw, a_log_->value, dt_bias_->value}, d_value, d_raw,
                                   a_log_->grad, dt_bias_->grad);
      break;
    case Map::kTimeStep:
      kernels::time_step_backward(exec, raw, dt_bias_->value, d_value, d_raw, dt_bias_->grad);
      break;
    case Map::kCapped:  // the factor and its inverse cancel
      kernels::activation_backward(exec, Activation::kTanh, raw, d_value, d_raw);
  }
  if (bias_ != nullptr) kernels::column_sum(exec, d_raw, bias_->grad);
}

LinearGates::LinearGates(const Build& build, const HeadGroup& heads, std::vector<GateSpec> specs,
                         Projected projected)
    : heads_(heads), compute_(build.compute), specs_(std::move(specs)), projected_(projected) {
  for (const GateSpec& spec : specs_) {
    WEFT_CHECK(spec.between == Activation::kIdentity, "gate {} with an activation in between",
               spec.stem);
    maps_.emplace_back(spec);
  }
  if (projected == Projected::kAmongRows) return;
  std::vector<size_t> full_rank;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].rank == 0) full_rank.push_back(i);
  }
  if (!full_rank.empty()) add_projection(build, full_rank);
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].rank > 0) add_projection(build, {i});
  }
}

void LinearGates::add_projection(const Build& build, std::vector<size_t> gates) {
  const GateSpec& first = specs_[gates.front()];
  std::vector<Linear::Part> parts;
  for (const size_t i : gates)
    parts.push_back(heads_.part(specs_[i].weight_name(), specs_[i].width));
  std::optional<Linear> down;
  if (first.rank > 0) {
    down.emplace(build, std::vector{Linear::Part{first.down_weight_name(), first.rank}},
                 build.hidden,
                 Linear::Options{.init = first.down_init, .partial_over = {Axis::kTensor}});
  }
  const int64_t in = first.rank > 0 ? first.rank : build.hidden;
  Linear up(
      build, parts, in,
      {.init = first.init,
       .cut = Linear::Cut::kRows,
       .bias = first.bias == GateSpec::Bias::kOfProjection ? Linear::Bias::kYes : Linear::Bias::kNo,
       .bias_init = first.bias_init});
  weights_ += in * up.out() + first.rank * build.hidden;
  const bool exact = first.bias == GateSpec::Bias::kExact;
  projections_.push_back(
      {std::move(down), std::move(up), std::move(gates), exact ? DType::kF32 : compute_});
}

void LinearGates::declare_vectors(const Build& build) {
  for (GateMap& map : maps_) map.declare(build, heads_);
}

LinearGates::Saved LinearGates::forward(Exec& exec, const Tensor& x, View among_rows,
                                        SavedStack& saved) const {
  Saved f;
  f.value.resize(specs_.size());
  const auto open = [&](size_t i, View raw, int64_t& column) {
    const int64_t width = heads_.count * specs_[i].width;
    f.value[i] = exec.empty({raw.rows(), width});
    maps_[i].forward(exec, raw.columns(column, width), f.value[i]);
    column += width;
  };
  int64_t column = 0;
  for (size_t i = 0; projected_ == Projected::kAmongRows && i < specs_.size(); ++i) {
    open(i, among_rows, column);
  }
  for (const Projection& p : projections_) {
    const Tensor low = p.down ? p.down->forward(exec, x, compute_, saved) : x;
    f.raw.push_back(p.up.forward(exec, low, DType::kF32, saved));
    column = 0;
    for (const size_t i : p.gates) open(i, f.raw.back(), column);
  }
  return f;
}

void LinearGates::backward(Exec& exec, const Saved& f, ConstView among_rows,
                           const std::vector<Tensor>& d_value, View d_among_rows, SavedStack& saved,
                           Tensor& dx) const {
  const auto close = [&](size_t i, ConstView raw, View d_raw, int64_t& column) {
    const int64_t width = heads_.count * specs_[i].width;
    maps_[i].backward(exec, raw.columns(column, width), d_value[i], d_raw.columns(column, width));
    column += width;
  };
  int64_t column = 0;
  for (size_t i = 0; projected_ == Projected::kAmongRows && i < specs_.size(); ++i) {
    close(i, among_rows, d_among_rows, column);
  }
  for (size_t n = projections_.size(); n-- > 0;) {
    const Projection& p = projections_[n];
    const Tensor d_raw = exec.empty(f.raw[n].shape(), p.gradient);
    column = 0;
    for (const size_t i : p.gates) close(i, f.raw[n], d_raw, column);
    const Tensor d = in_type(exec, d_raw, compute_);
    if (p.down) {
      const Tensor d_low = p.up.backward(exec, d, compute_, saved);
      add_to(exec, dx, p.down->backward(exec, d_low, DType::kF32, saved));
    } else {
      add_to(exec, dx, p.up.backward(exec, d, DType::kF32, saved));
    }
  }
}

void add_to(Exec& exec, Tensor& dx, const Tensor& more) {
  if (dx.defined()) {
    kernels::add(exec, dx, more, dx);
  } else {
    dx = more;
  }
}

}  // namespace weft
