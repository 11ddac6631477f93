#include "layers/mixers/linear_finish.h"

#include "kernels/gates/mlstm.h"
#include "kernels/gates/output_gate.h"
#include "layers/basic/cast.h"

namespace weft {

using kernels::Activation;
using kernels::GateActivation;
using Norm = FinishSpec::Norm;

LinearFinish::LinearFinish(const Build& build, const FinishSpec& spec, int64_t heads, int64_t dv,
                           int64_t unit)
    : spec_(spec), compute_(build.compute), heads_(heads) {
  if (spec.norm == Norm::kNone) return;
  if (spec.norm == Norm::kJoint) {
    joint_ = std::make_unique<WideNorm>(build, spec.name, heads * dv, dv * unit, 1, spec.epsilon);
    return;
  }
  ParameterSpec weight{.name = build.scope + spec.name,
                       .global = {dv},
                       .partial_over = {Axis::kTensor},
                       .init = Init::constant(1.0),
                       .weight_decay = false,
                       .f32 = true};
  if (spec.norm == Norm::kCentered) {
    weight.global = {heads * dv};
    weight.partial_over = {};
    weight.splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = dv * unit}};
  }
  weight_ = &build.declare(weight);
}

Tensor LinearFinish::forward(Exec& exec, ConstView gate, Saved& f) const {
  if (spec_.norm == Norm::kNone) return in_type(exec, std::exchange(f.out, {}), compute_);
  if (spec_.norm == Norm::kJoint) return joint(exec, gate, f);
  if (spec_.norm == Norm::kCentered) kernels::center_heads(exec, heads_, f.out, f.out);
  f.inv_rms = exec.empty({f.out.shape()[0], heads_});
  const Tensor y = exec.empty(f.out.shape(), compute_);
  kernels::head_norm_forward(exec, head_norm(), f.out, gate, weight_->value, y, f.inv_rms);
  return y;
}

Tensor LinearFinish::backward(Exec& exec, const Saved& f, const Tensor& dy, ConstView gate,
                              View d_gate, DType type) const {
  if (spec_.norm == Norm::kNone) return in_type(exec, dy, type);
  if (spec_.norm == Norm::kJoint) return joint_backward(exec, f, dy, gate, d_gate, type);
  const Tensor d_out = exec.empty(f.out.shape(), type);
  kernels::head_norm_backward(exec, head_norm(), dy, f.out, gate, weight_->value, f.inv_rms, d_out,
                              d_gate, weight_->grad);
  if (spec_.norm == Norm::kCentered) kernels::center_heads(exec, heads_, d_out, d_out);
  return d_out;
}

Tensor LinearFinish::joint(Exec& exec, ConstView gate, Saved& f) const {
  if (spec_.before != Activation::kIdentity) {
    f.active = exec.empty(f.out.shape(), compute_);
    kernels::activation_forward(exec, spec_.before, f.out, f.active);
  }
  const Tensor y = exec.empty(f.out.shape(), compute_);
  f.inv_rms = joint_->forward(exec, f.active.defined() ? f.active : f.out, y);
  if (spec_.gate == GateActivation::kNone) return y;
  f.normed = y;
  const Tensor gated = exec.empty(y.shape(), compute_);
  kernels::output_gate_forward(exec, spec_.gate, y, gate, gated);
  return gated;
}

Tensor LinearFinish::joint_backward(Exec& exec, const Saved& f, const Tensor& dy, ConstView gate,
                                    View d_gate, DType type) const {
  if (spec_.gate != GateActivation::kNone) {
    kernels::output_gate_backward(exec, spec_.gate, f.normed, gate, dy, dy, d_gate);
  }
  const Tensor d_out = exec.empty(f.out.shape(), type);
  joint_->backward(exec, dy, f.active.defined() ? f.active : f.out, f.inv_rms, d_out);
  if (f.active.defined()) {
    kernels::activation_backward(exec, spec_.before, f.out, d_out, d_out);
  }
  return d_out;
}

}  // namespace weft
