// Softmax attention.   o_i = sum_j softmax_j(d^{-1/2} q_i . k_j) v_j   over j <= i in the same
// document and, with a window w, i - j < w. Query head h reads kv head h / (heads / kv_heads).
// projection (+ bias) -> QK-norm -> rotation -> attention -> o_proj
#include <cmath>

#include "kernels/norm.h"
#include "kernels/rope.h"
#include "layers/convert.h"
#include "layers/linear.h"
#include "layers/mixers/mixer.h"
#include "layers/recurrence/attention.h"

namespace weft {
namespace {

struct SoftmaxOptions {
  HeadOptions heads;
  bool rope = true;
  double rope_base = 10000.0;
  int64_t rope_width = 0;
  bool qk_norm = false;
  int64_t window = 0;
  bool bias = false;
};

void fields(FieldVisitor& f, SoftmaxOptions& c) {
  fields(f, c.heads);
  f("rope", c.rope, "rotate q and k by position");
  f("rope_base", c.rope_base, "base of the rotation's frequencies", above(0));
  f("rope_width", c.rope_width, "channels of each head that are rotated; 0: all",
    between(0, 1 << 20));
  f("qk_norm", c.qk_norm, "RMSNorm of q and k per head, before the rotation");
  f("window", c.window, "keys a token sees, itself included; 0: all", at_least(0));
  f("bias", c.bias, "biases on the q, k and v projections");
}

constexpr float kQkNormEpsilon = 1e-6f;

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
             h_.kv_part("k_proj", h_.dk),
             h_.kv_part("v_proj", h_.dv)},
            build.hidden,
            {.cut = Linear::Cut::kRows, .bias = o.bias ? Linear::Bias::kYes : Linear::Bias::kNo}),
        rows_({h_, 1.0f / std::sqrt(static_cast<float>(h_.dk)), o.window}),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
    if (!o.qk_norm) return;
    q_norm_ = &declare_norm(build, "q_norm.weight");
    k_norm_ = &declare_norm(build, "k_norm.weight");
  }

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    Saved f;
    f.projected = project_.forward(exec, x, compute_, saved);
    if (o_.qk_norm) normalize(exec, f);
    if (o_.rope) rotate(exec, sequence, queries(f), keys(f), kernels::Rope::Direction::kForward);
    const Tensor out = rows_.forward(exec, inputs(f), {}, sequence, context.part("keys"), saved);
    saved.push(std::move(f));
    return out_.forward(exec, out, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const Tensor d_out = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const View dq = columns(d, 0), dk = columns(d, 1), dv = columns(d, 2);
    rows_.backward(exec, inputs(f), {}, sequence, d_out, context.part("keys"), {dq, dk, dv}, saved);
    if (o_.rope) rotate(exec, sequence, dq, dk, kernels::Rope::Direction::kBackward);
    if (o_.qk_norm) {
      kernels::head_norm_backward(exec, head_norm(h_.heads), dq, columns(f.projected, 0), {},
                                  q_norm_->value, f.q_inv_rms, dq, {}, q_norm_->grad);
      kernels::head_norm_backward(exec, head_norm(h_.kv_heads), dk, columns(f.projected, 1), {},
                                  k_norm_->value, f.k_inv_rms, dk, {}, k_norm_->grad);
    }
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t length) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + h_.heads * h_.dv) +
           rows_.flops_per_token(length);
  }

 private:
  struct Saved {
    Tensor projected;  // [tokens, q | k | v]; without QK-norm q and k are rotated in place
    Tensor q, k;       // after norm and rotation; undefined without QK-norm
    Tensor q_inv_rms, k_inv_rms;
  };

  Parameter& declare_norm(const MixerBuild& build, const char* name) const {
    return build.declare({.name = build.scope + name,
                          .global = {h_.dk},
                          .partial_over = {Axis::kTensor},
                          .init = Init::constant(1.0),
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

  static kernels::HeadNorm head_norm(int64_t heads) {
    return {.heads = heads, .epsilon = kQkNormEpsilon};
  }

  void normalize(Exec& exec, Saved& f) const {
    const int64_t tokens = f.projected.shape()[0];
    f.q = exec.empty({tokens, h_.heads * h_.dk}, compute_);
    f.k = exec.empty({tokens, h_.kv_heads * h_.dk}, compute_);
    f.q_inv_rms = exec.empty({tokens, h_.heads});
    f.k_inv_rms = exec.empty({tokens, h_.kv_heads});
    kernels::head_norm_forward(exec, head_norm(h_.heads), columns(f.projected, 0), {},
                               q_norm_->value, f.q, f.q_inv_rms);
    kernels::head_norm_forward(exec, head_norm(h_.kv_heads), columns(f.projected, 1), {},
                               k_norm_->value, f.k, f.k_inv_rms);
  }

  void rotate(Exec& exec, const Sequence& sequence, View q, View k,
              kernels::Rope::Direction direction) const {
    kernels::Rope rope{.heads = h_.heads,
                       .head_width = h_.dk,
                       .rotary_width = o_.rope_width,
                       .base = o_.rope_base,
                       .direction = direction};
    kernels::rope(exec, rope, sequence.positions, q);
    rope.heads = h_.kv_heads;
    kernels::rope(exec, rope, sequence.positions, k);
  }

  AttentionInputs inputs(const Saved& f) const {
    return {queries(f), keys(f), columns(f.projected, 2)};
  }

  SoftmaxOptions o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_;
  AttentionRows rows_;
  Linear out_;
  Parameter* q_norm_ = nullptr;  // [dk]
  Parameter* k_norm_ = nullptr;
};

}  // namespace

std::unique_ptr<Mixer> make_softmax(const MixerBuild& build) {
  auto o = read_options<SoftmaxOptions>(build.options, "softmax");
  o.heads = resolve(build, o.heads);
  if (o.rope_width == 0) o.rope_width = o.heads.dk;
  if (o.rope) check_rotary(build, o.rope_width, o.heads.dk);
  return std::make_unique<Softmax>(build, o);
}

std::vector<FieldInfo> options_of_softmax() { return describe<SoftmaxOptions>(); }

}  // namespace weft
