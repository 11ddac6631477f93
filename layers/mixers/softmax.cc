// Softmax attention.   o_i = sum_j softmax_j(s q_i . k_j) v_j,   s = d^{-1/2} unless set
// over j <= i in the same document and, with a window w, i - j < w. Query head h reads kv head
// h / (heads / kv_heads).
//   projection (+ bias) -> QK-norm -> rotation -> attention -> times sigmoid(g_proj x) -> o_proj
#include <cmath>
#include <optional>

#include "kernels/gates/output_gate.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/rotation.h"
#include "layers/basic/wide_norm.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/attention.h"

namespace weft {
namespace {

struct SoftmaxOptions {
  HeadOptions heads;
  bool rope = true;
  RotationOptions rotation;
  int64_t rope_width = 0;
  bool qk_norm = false, qk_norm_joint = false, qk_norm_offset = false;
  double qk_norm_eps = 1e-6;
  int64_t window = 0;
  double scale = 0.0;
  bool bias = false;
  bool output_gate = false;
};

void fields(FieldVisitor& f, SoftmaxOptions& c) {
  fields(f, c.heads);
  f("rope", c.rope, "rotate q and k by position");
  fields(f, c.rotation);
  f("rope_width", c.rope_width, "channels of each head that are rotated; 0: all",
    between(0, 1 << 20));
  f("qk_norm", c.qk_norm, "RMSNorm of q and k per head, before the rotation");
  f("qk_norm_joint", c.qk_norm_joint, "QK-norm over all heads at once, with a weight per channel");
  f("qk_norm_offset", c.qk_norm_offset,
    "weights of the QK-norm count from one, as model.norm_offset");
  f("qk_norm_eps", c.qk_norm_eps, "epsilon of the QK-norm", above(0));
  f("window", c.window, "keys a token sees, itself included; 0: all", at_least(0));
  f("scale", c.scale, "factor on q . k before the softmax; 0: dk^(-1/2)", at_least(0));
  f("bias", c.bias, "biases on the q, k and v projections");
  f("output_gate", c.output_gate,
    "multiply the output by the sigmoid of a projection of the input");
}

class Softmax final : public Mixer {
 public:
  Softmax(const MixerBuild& build, const SoftmaxOptions& o)
      : o_(o),
        h_(o.heads),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(
            build,
            {{"q_proj", h_.heads * h_.dk, h_.dk},
             kv_part(h_, "k_proj", h_.dk),
             kv_part(h_, "v_proj", h_.dv)},
            build.hidden,
            {.cut = Linear::Cut::kRows, .bias = o.bias ? Linear::Bias::kYes : Linear::Bias::kNo}),
        rotation_(o.rotation, o.rope ? o.rope_width : 0, h_.dk),
        rows_({h_, static_cast<float>(o.scale), o.window}),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
    if (o.output_gate) {
      gate_.emplace(build, std::vector<Linear::Part>{{"g_proj", h_.heads * h_.dv, h_.dv}},
                    build.hidden, Linear::Options{.cut = Linear::Cut::kRows});
    }
    if (!o.qk_norm) return;
    offset_ = o.qk_norm_offset ? 1.0f : 0.0f;
    if (o.qk_norm_joint) {
      const auto epsilon = static_cast<float>(o.qk_norm_eps);
      q_joint_.emplace(build, "q_norm.weight", h_.heads * h_.dk, h_.dk, 1, epsilon,
                       WideNorm::Variant{.offset = offset_});
      k_joint_.emplace(build, "k_norm.weight", h_.kv_heads * h_.dk, h_.dk, 1, epsilon,
                       WideNorm::Variant{.replicas = h_.kv_replicas, .offset = offset_});
      return;
    }
    q_norm_ = &declare_norm(build, "q_norm.weight");
    k_norm_ = &declare_norm(build, "k_norm.weight");
  }

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    Saved f;
    f.projected = project_.forward(exec, x, compute_, saved);
    if (o_.qk_norm) normalize(exec, f);
    if (o_.rope) rotate(exec, sequence, queries(f), keys(f), Rotation::Direction::kForward);
    Tensor out = rows_.forward(exec, inputs(f), {}, sequence, context.part("keys"), saved);
    if (gate_) {
      f.gate = gate_->forward(exec, x, compute_, saved);
      f.out = out;
      out = exec.empty(f.out.shape(), compute_);
      kernels::output_gate_forward(exec, kernels::GateActivation::kSigmoid, f.out, f.gate, out);
    }
    saved.push(std::move(f));
    return out_.forward(exec, out, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const Tensor d_out = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    Tensor dx_gate;
    if (gate_) {
      const Tensor d_gate = exec.empty(f.gate.shape(), compute_);
      kernels::output_gate_backward(exec, kernels::GateActivation::kSigmoid, f.out, f.gate, d_out,
                                    d_out, d_gate);
      dx_gate = gate_->backward(exec, d_gate, DType::kF32, saved);
    }
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const View dq = columns(d, 0), dk = columns(d, 1), dv = columns(d, 2);
    rows_.backward(exec, inputs(f), {}, sequence, d_out, context.part("keys"), {dq, dk, dv}, saved);
    if (o_.rope) rotate(exec, sequence, dq, dk, Rotation::Direction::kBackward);
    if (o_.qk_norm) normalize_backward(exec, f, dq, dk);
    const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
    if (gate_) kernels::add(exec, dx, dx_gate, dx);
    return dx;
  }

  double flops_per_token(int64_t length) const override {
    const int64_t gate = gate_ ? h_.heads * h_.dv : 0;
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + gate + h_.heads * h_.dv) +
           rows_.flops_per_token(length);
  }

 private:
  struct Saved {
    Tensor projected;  // [tokens, q | k | v]; without QK-norm q and k are rotated in place
    Tensor q, k;       // after norm and rotation; undefined without QK-norm
    Tensor q_inv_rms, k_inv_rms;
    Tensor out, gate;  // before the gate and before its sigmoid; undefined without a gate
  };

  Parameter& declare_norm(const MixerBuild& build, const char* name) const {
    return build.declare({.name = build.scope + name,
                          .global = {h_.dk},
                          .partial_over = {Axis::kTensor},
                          .init = Init::constant(o_.qk_norm_offset ? 0.0 : 1.0),
                          .weight_decay = false,
                          .f32 = true});
  }

  View columns(const Tensor& t, int which) const {
    const int64_t q = h_.heads * h_.dk, k = h_.kv_heads * h_.dk, v = h_.kv_heads * h_.dv;
    if (which == 0) return t.view().columns(0, q);
    return which == 1 ? t.view().columns(q, k) : t.view().columns(q + k, v);
  }
  View queries(const Saved& f) const {
    return f.q.defined() ? f.q.view() : columns(f.projected, 0);
  }
  View keys(const Saved& f) const { return f.k.defined() ? f.k.view() : columns(f.projected, 1); }

  kernels::HeadNorm head_norm(int64_t heads) const {
    return {.heads = heads, .epsilon = static_cast<float>(o_.qk_norm_eps)};
  }
  // What a norm's weight stands for: itself, or one more.
  Tensor norm_scale(Exec& exec, const Parameter& weight) const {
    if (offset_ == 0.0f) return weight.value;
    const Tensor one = exec.scratch(weight.shape);
    kernels::shift_scale(exec, weight.value, offset_, 1.0f, one);
    return one;
  }

  void normalize(Exec& exec, Saved& f) const {
    const int64_t tokens = f.projected.shape()[0];
    f.q = exec.empty({tokens, h_.heads * h_.dk}, compute_);
    f.k = exec.empty({tokens, h_.kv_heads * h_.dk}, compute_);
    if (q_joint_) {
      f.q_inv_rms = q_joint_->forward(exec, copy_of(exec, columns(f.projected, 0), compute_), f.q);
      f.k_inv_rms = k_joint_->forward(exec, copy_of(exec, columns(f.projected, 1), compute_), f.k);
      return;
    }
    f.q_inv_rms = exec.empty({tokens, h_.heads});
    f.k_inv_rms = exec.empty({tokens, h_.kv_heads});
    kernels::head_norm_forward(exec, head_norm(h_.heads), columns(f.projected, 0), {},
                               norm_scale(exec, *q_norm_), f.q, f.q_inv_rms);
    kernels::head_norm_forward(exec, head_norm(h_.kv_heads), columns(f.projected, 1), {},
                               norm_scale(exec, *k_norm_), f.k, f.k_inv_rms);
  }

  void normalize_backward(Exec& exec, const Saved& f, View dq, View dk) const {
    const View q = columns(f.projected, 0), k = columns(f.projected, 1);
    if (!q_joint_) {
      kernels::head_norm_backward(exec, head_norm(h_.heads), dq, q, {}, norm_scale(exec, *q_norm_),
                                  f.q_inv_rms, dq, {}, q_norm_->grad);
      kernels::head_norm_backward(exec, head_norm(h_.kv_heads), dk, k, {},
                                  norm_scale(exec, *k_norm_), f.k_inv_rms, dk, {}, k_norm_->grad);
      return;
    }
    const auto joint = [&](const WideNorm& norm, View d, ConstView x, const Tensor& inv_rms) {
      const Tensor dx = exec.empty({x.rows(), x.width()});
      norm.backward(exec, copy_of(exec, d, DType::kF32), copy_of(exec, x, x.dtype), inv_rms, dx);
      kernels::copy(exec, dx, d);
    };
    joint(*q_joint_, dq, q, f.q_inv_rms);
    joint(*k_joint_, dk, k, f.k_inv_rms);
  }

  // With rows end to end.
  static Tensor copy_of(Exec& exec, ConstView x, DType type) {
    const Tensor out = exec.empty({x.rows(), x.width()}, type);
    kernels::copy(exec, x, out);
    return out;
  }

  void rotate(Exec& exec, const Sequence& sequence, View q, View k,
              Rotation::Direction direction) const {
    rotation_.turn(exec, sequence, h_.heads, q, direction);
    rotation_.turn(exec, sequence, h_.kv_heads, k, direction);
  }

  AttentionInputs inputs(const Saved& f) const {
    return {queries(f), keys(f), columns(f.projected, 2)};
  }

  SoftmaxOptions o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_;
  Rotation rotation_;
  AttentionRows rows_;
  Linear out_;
  std::optional<Linear> gate_;
  Parameter* q_norm_ = nullptr;  // [dk]
  Parameter* k_norm_ = nullptr;
  std::optional<WideNorm> q_joint_, k_joint_;  // in their place
  float offset_ = 0.0f;                        // added to the weights of the norms
};

}  // namespace

std::unique_ptr<Mixer> make_softmax(const MixerBuild& build) {
  auto o = read_options<SoftmaxOptions>(build.options, "softmax");
  o.heads = resolve(build, o.heads);
  o.rotation = resolve(build, o.rotation);
  if (o.rope_width == 0) o.rope_width = o.heads.dk;
  if (o.scale == 0) o.scale = 1.0 / std::sqrt(static_cast<double>(o.heads.dk));
  if (o.rope) check_rotary(build, o.rope_width, o.heads.dk);
  if (!o.qk_norm && (o.qk_norm_joint || o.qk_norm_offset)) {
    throw ConfigError(
        "{} = true says how q and k are normed, and they are not; set qk_norm = true too",
        place_of(build.options, o.qk_norm_joint ? "qk_norm_joint" : "qk_norm_offset"));
  }
  return std::make_unique<Softmax>(build, o);
}

std::vector<FieldInfo> options_of_softmax() { return describe<SoftmaxOptions>(); }

}  // namespace weft
