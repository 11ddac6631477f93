#include "layers/memory/memory_gate.h"

#include "kernels/gates/decay_gate.h"
#include "kernels/gates/head_decay.h"
#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

using kernels::Activation;
using kernels::Write;

MemoryLinear::Options down_of(const InnerBuild& b, const MemoryGate::Options& o) {
  return {.name = o.name + "_proj.0",
          .shared_name = "shared_" + o.name + ".0",
          .out = o.rank,
          .in = b.build.hidden,
          .init = o.pair ? o.pair->first : o.init};
}
MemoryLinear::Options up_of(const InnerBuild& b, const MemoryGate::Options& o) {
  const bool pair = o.rank > 0;
  return {.name = o.name + (pair ? "_proj.1" : "_proj"),
          .shared_name = "shared_" + o.name + (pair ? ".1" : ""),
          .out = b.heads * o.width,
          .in = pair ? o.rank : b.build.hidden,
          .unit = o.width,
          .reads = pair ? MemoryLinear::Reads::kRows : MemoryLinear::Reads::kTokens,
          .bias = o.bias,
          .init = o.pair ? o.pair->second : o.init,
          .bias_init = o.bias_init};
}

Parameter* head_vector(const InnerBuild& b, const char* name, int64_t width, const Init& init) {
  return &b.build.declare({.name = b.build.scope + name,
                           .global = {b.heads * width},
                           .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = width}},
                           .init = init,
                           .weight_decay = false,
                           .f32 = true});
}

kernels::DecayGate decay_gate(const MemoryGate::Options& o) {
  using Kind = kernels::DecayGate::Kind;
  return {.kind = o.map == MemoryGate::Map::kMinusExp ? Kind::kMinusExp : Kind::kLogSigmoid,
          .divisor = o.factor};
}

}  // namespace

MemoryGate::MemoryGate(const InnerBuild& b, const Options& o)
    : options_(o), space_(b.space), compute_(b.build.compute), up_(b.build, b.space, up_of(b, o)) {
  if (o.rank > 0) down_.emplace(b.build, b.space, down_of(b, o));
  if (o.map != Map::kDecay) return;
  a_log_ = head_vector(b, "A_log", 1, Init::log_of_uniform(o.slowest, 16.0));
  dt_bias_ = head_vector(b, "dt_bias", o.width, Init::time_step(1e-3, 1e-1));
}

void MemoryGate::open(Exec& exec, const Tensor& raw, const Tensor& value) const {
  switch (options_.map) {
    case Map::kPlain: kernels::copy(exec, raw, value); break;
    case Map::kSigmoid:
      kernels::activation_forward(exec, Activation::kSigmoid, raw, value);
      kernels::scale(exec, value, options_.factor, value);
      break;
    case Map::kDecay:
      kernels::head_decay_forward(exec, {raw, a_log_->value, dt_bias_->value}, value);
      break;
    case Map::kCapped:
      kernels::scale(exec, raw, 1.0f / options_.factor, raw);
      kernels::activation_forward(exec, Activation::kTanh, raw, value);
      kernels::scale(exec, value, options_.factor, value);
      break;
    default: kernels::decay_gate_forward(exec, decay_gate(options_), raw, value);
  }
}

Tensor MemoryGate::close(Exec& exec, const Tensor& raw, const Tensor& d_value) const {
  const Tensor dz = exec.empty(raw.shape(), compute_);
  switch (options_.map) {
    case Map::kPlain: kernels::copy(exec, d_value, dz); break;
    case Map::kSigmoid:
      kernels::activation_backward(exec, Activation::kSigmoid, raw, d_value, dz);
      kernels::scale(exec, dz, options_.factor, dz);
      break;
    case Map::kDecay:
      kernels::head_decay_backward(exec, {raw, a_log_->value, dt_bias_->value}, d_value, dz,
                                   a_log_->grad, dt_bias_->grad);
      break;
    case Map::kCapped:  // the factor and its inverse cancel
      kernels::activation_backward(exec, Activation::kTanh, raw, d_value, dz);
      break;
    default: kernels::decay_gate_backward(exec, decay_gate(options_), raw, d_value, dz);
  }
  return dz;
}

Tensor MemoryGate::active(Exec& exec, const Tensor& low) const {
  if (options_.between == Activation::kIdentity) return low;
  const Tensor out = exec.empty(low.shape(), compute_);
  kernels::activation_forward(exec, options_.between, low, out);
  return out;
}

MemoryGate::Saved MemoryGate::forward(Exec& exec, const InnerInputs& in) const {
  Saved f;
  if (down_) f.low = down_->forward(exec, in.x, in.rows, compute_);
  f.raw = up_.forward(exec, down_ ? active(exec, f.low) : in.x, in.rows, DType::kF32);
  const Tensor value = exec.empty(f.raw.shape());
  open(exec, f.raw, value);
  f.value = space_.spread(exec, in.rows, value);
  return f;
}

void MemoryGate::backward(Exec& exec, const InnerInputs& in, const Saved& f, const Tensor& d_value,
                          View dx) const {
  const Tensor dz = close(exec, f.raw, space_.collect(exec, in.rows, d_value));
  if (!down_) return up_.backward(exec, dz, in.x, in.rows, dx, Write::kAccumulate);
  const Tensor d_low = exec.empty(f.low.shape(), compute_);
  up_.backward(exec, dz, active(exec, f.low), in.rows, d_low, Write::kReplace);
  if (options_.between != Activation::kIdentity) {
    kernels::activation_backward(exec, options_.between, f.low, d_low, d_low);
  }
  down_->backward(exec, d_low, in.x, in.rows, dx, Write::kAccumulate);
}

}  // namespace weft
