// Forgetting attention (FoX).
//   o_i = sum_j softmax_j(d^{-1/2} q_i . k_j + sum_{l=j+1..i} log f_l) v_j
// over j <= i in the same document, with a gate f_t = sigmoid(w_f x_t + b_f) for every query head.
//   projection -> shift of k and v -> QK-norm -> rotation -> attention -> output norm
//   -> output gate -> o_proj
// where all but the projections and the attention are options; FoX (Pro) has shift, norms and gate.
// Without forgetting, f = 1, and with a rotation it is the Transformer (Pro) that the paper
// compares with.
#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/gates/forget_gate.h"
#include "kernels/gates/output_gate.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/rotation.h"
#include "layers/basic/token_shift.h"
#include "layers/context/mixer.h"
#include "layers/context/tensor_of.h"
#include "layers/recurrence/attention.h"

namespace weft {
namespace {

struct FoxOptions {
  HeadOptions heads;
  bool pro = false;
  bool qk_norm = false;
  bool output_norm = false;
  bool output_gate = false;
  bool kv_shift = false;
  bool forget_gate = true;
  bool rope = false;
  RotationOptions rotation;
  bool acp = false;
  double acp_log_epsilon = -10.0;
};

void fields(FieldVisitor& f, FoxOptions& c) {
  fields(f, c.heads);
  f("pro", c.pro,
    "FoX (Pro): qk_norm, output_norm, output_gate and kv_shift together, but for those that are "
    "set "
    "to false");
  f("qk_norm", c.qk_norm, "RMSNorm of q and k, a weight for every head and channel");
  f("output_norm", c.output_norm, "RMSNorm of every head's output");
  f("output_gate", c.output_gate,
    "multiply the output by the sigmoid of a projection of the input");
  f("kv_shift", c.kv_shift,
    "mix keys and values with those of the token before, by a learned gate");
  f("forget_gate", c.forget_gate, "false: nothing is forgotten, as in the Transformer (Pro)");
  f("rope", c.rope, "rotate q and k by position");
  fields(f, c.rotation);
  f("acp", c.acp, "adaptive computation pruning: skip blocks that the gates have made negligible");
  f("acp_log_epsilon", c.acp_log_epsilon,
    "logarithm of the largest softmax weight that a query may lose to pruning",
    {.max = 0, .open_max = true});
}

constexpr float kQkNormEpsilon = 1e-5f, kOutputNormEpsilon = 1e-6f;

class Fox final : public Mixer {
 public:
  Fox(const MixerBuild& build, const FoxOptions& o)
      : o_(o),
        h_(o.heads),
        compute_(build.compute),
        hidden_(build.hidden),
        layer_(build.layer),
        widths_{h_.heads * h_.dk, h_.kv_heads * h_.dk, h_.kv_heads * h_.dv,
                o.output_gate ? h_.heads * h_.dv : 0},
        project_(build, projections(o), build.hidden, {.cut = Linear::Cut::kRows}),
        shift_k_(h_.kv_heads, h_.dk),
        shift_v_(h_.kv_heads, h_.dv),
        rotation_(o.rotation, o.rope ? h_.dk : 0, h_.dk),
        rows_({h_, 1.0f / std::sqrt(static_cast<float>(h_.dk))}) {
    if (o.forget_gate) {
      forget_.emplace(build, std::vector<Linear::Part>{{"fgate_proj", h_.heads}}, build.hidden,
                      Linear::Options{.cut = Linear::Cut::kRows, .bias = Linear::Bias::kYes});
    }
    if (o.kv_shift) {
      shift_ = std::make_unique<Linear>(
          build, std::vector<Linear::Part>{kv_part(h_, "k_shift", 1), kv_part(h_, "v_shift", 1)},
          build.hidden, Linear::Options{.cut = Linear::Cut::kRows});
    }
    if (o.qk_norm) {
      q_norm_ = &declare_norm(build, "q_norm.weight", h_.heads, h_.dk, 1);
      k_norm_ = &declare_norm(build, "k_norm.weight", h_.kv_heads, h_.dk, h_.kv_replicas);
    }
    if (o.output_norm) out_norm_ = &declare_norm(build, "out_norm.weight", h_.heads, h_.dv, 1);
    out_ = std::make_unique<Linear>(
        build, std::vector<Linear::Part>{{"o_proj", build.hidden}}, h_.heads * h_.dv,
        Linear::Options{.init = output_init(build), .cut = Linear::Cut::kColumns});
  }

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const int64_t tokens = sequence.tokens();
    Saved f;
    f.projected = project_.forward(exec, x, compute_, saved);
    // Gates stay in f32 in every precision.
    if (forget_) f.forget_logits = forget_->forward(exec, x, DType::kF32, saved);
    if (o_.kv_shift) {
      f.shift_logits = shift_->forward(exec, x, DType::kF32, saved);
      shift(exec, context, f, saved);
    }
    if (o_.qk_norm) normalize(exec, f);
    if (o_.rope) rotate(exec, sequence, queries(f), keys(f), Rotation::Direction::kForward);
    if (o_.acp && o_.qk_norm) f.bound = score_bound(exec);
    if (forget_) {
      f.log_forget = exec.empty({tokens, h_.heads});
      kernels::forget_gate_forward(exec, f.forget_logits, f.log_forget);
    }
    PruningReport report{.layer = layer_};
    f.out = rows_.forward(exec, inputs(f), {pruning(f), o_.acp ? &report.heads : nullptr}, sequence,
                          context.part("keys"), saved);
    if (o_.acp && context.step != nullptr && !context.step->repeating) {
      // Of all heads of the layer: those of other tensor ranks are theirs to tell.
      std::vector<kernels::BlockCount> all(static_cast<size_t>(h_.all_heads));
      std::copy(report.heads.begin(), report.heads.end(), all.begin() + h_.first_head);
      report.heads = std::move(all);
      context.step->pruning.push_back(std::move(report));
    }
    const Tensor y = finish(exec, f);
    saved.push(std::move(f));
    return out_->forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const Tensor d_y = out_->backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const Tensor d_out = finish_backward(exec, f, d_y, d);
    const Tensor d_kv = o_.kv_shift ? exec.empty(f.shifted.shape(), compute_) : Tensor();
    const View dq = part(d, kQ),
               dk = o_.kv_shift ? d_kv.view().columns(0, widths_[kK]) : part(d, kK),
               dv = o_.kv_shift ? d_kv.view().columns(widths_[kK], widths_[kV]) : part(d, kV);
    const Tensor d_forget = forget_ ? exec.empty(f.log_forget.shape()) : Tensor();
    rows_.backward(exec, inputs(f), {pruning(f)}, sequence, d_out, context.part("keys"),
                   {dq, dk, dv, forget_ ? d_forget.view() : View{}}, saved);
    if (o_.rope) rotate(exec, sequence, dq, dk, Rotation::Direction::kBackward);
    if (o_.qk_norm) normalize_backward(exec, f, dq, dk);

    std::vector<Tensor> parts;  // of dx
    if (o_.kv_shift) {
      const Tensor d_logits = exec.empty(f.shift_logits.shape());
      shift_backward(exec, context, f, dk, dv, d, d_logits, saved);
      parts.push_back(
          shift_->backward(exec, in_type(exec, d_logits, compute_), DType::kF32, saved));
    }
    if (forget_) {
      kernels::forget_gate_backward(exec, f.forget_logits, d_forget, d_forget);
      parts.push_back(
          forget_->backward(exec, in_type(exec, d_forget, compute_), DType::kF32, saved));
    }
    const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
    for (const Tensor& part : parts) kernels::add(exec, dx, part, dx);
    return dx;
  }

  // What pruning saves depends on the gates and is not taken off.
  double flops_per_token(int64_t length) const override {
    const int64_t rows =
        project_.out() + (forget_ ? forget_->out() : 0) + (shift_ ? shift_->out() : 0);
    return 2.0 * static_cast<double>(hidden_) * static_cast<double>(rows + h_.heads * h_.dv) +
           rows_.flops_per_token(length);
  }

 private:
  struct Saved {
    Tensor projected;      // [tokens, q | k | v | output gate]
    Tensor forget_logits;  // [tokens, heads] f32; undefined without forgetting
    Tensor log_forget;     // [tokens, heads] f32; likewise
    Tensor shift_logits;   // [tokens, kv_heads | kv_heads] f32; undefined without kv_shift
    Tensor shifted;        // [tokens, k | v]; undefined without kv_shift
    Tensor q, k;           // after norm and rotation; undefined without QK-norm
    Tensor q_inv_rms, k_inv_rms, out_inv_rms;
    Tensor bound;  // [heads]; undefined unless pruning follows from norm weights
    Tensor out;    // [tokens, heads * dv]
  };
  enum Part { kQ, kK, kV, kGate };

  static std::vector<Linear::Part> projections(const FoxOptions& o) {
    const HeadOptions& h = o.heads;
    std::vector<Linear::Part> parts = {
        {"q_proj", h.heads * h.dk, h.dk}, kv_part(h, "k_proj", h.dk), kv_part(h, "v_proj", h.dv)};
    if (o.output_gate) parts.push_back({"ogate_proj", h.heads * h.dv, h.dv});
    return parts;
  }

  static Parameter& declare_norm(const MixerBuild& build, const char* name, int64_t heads,
                                 int64_t width, int replicas) {
    return build.declare(
        {.name = build.scope + name,
         .global = {heads * width},
         .splits = {Split{.dim = 0, .axis = Axis::kTensor, .replicas = replicas, .unit = width}},
         .init = Init::constant(1.0),
         .weight_decay = false,
         .f32 = true});
  }

  View part(const Tensor& t, Part which) const {
    int64_t begin = 0;
    for (int i = 0; i < which; ++i) begin += widths_[i];
    return widths_[which] == 0 ? View{} : t.view().columns(begin, widths_[which]);
  }
  // Keys and values between shift and norm.
  View shifted_keys(const Saved& f) const {
    return o_.kv_shift ? f.shifted.view().columns(0, widths_[kK]) : part(f.projected, kK);
  }
  View values(const Saved& f) const {
    return o_.kv_shift ? f.shifted.view().columns(widths_[kK], widths_[kV]) : part(f.projected, kV);
  }
  View queries(const Saved& f) const { return o_.qk_norm ? f.q.view() : part(f.projected, kQ); }
  View keys(const Saved& f) const { return o_.qk_norm ? f.k.view() : shifted_keys(f); }

  View shift_logits(const Tensor& logits, Part which) const {
    return logits.view().columns(which == kK ? 0 : h_.kv_heads, h_.kv_heads);
  }
  void shift(Exec& exec, const MixerContext& context, Saved& f, SavedStack& saved) const {
    f.shifted = exec.empty({context.sequence.tokens(), widths_[kK] + widths_[kV]}, compute_);
    shift_k_.forward(exec,
                     {part(f.projected, kK), shift_logits(f.shift_logits, kK), shifted_keys(f)},
                     context.sequence, context.part("k_shift"), saved);
    shift_v_.forward(exec, {part(f.projected, kV), shift_logits(f.shift_logits, kV), values(f)},
                     context.sequence, context.part("v_shift"), saved);
  }
  // dk, dv: gradients of what was shifted.
  void shift_backward(Exec& exec, const MixerContext& context, const Saved& f, View dk, View dv,
                      const Tensor& d, const Tensor& d_logits, SavedStack& saved) const {
    shift_v_.backward(exec, {part(f.projected, kV), shift_logits(f.shift_logits, kV), {}},
                      context.sequence, dv, context.part("v_shift"),
                      {part(d, kV), shift_logits(d_logits, kV)}, saved);
    shift_k_.backward(exec, {part(f.projected, kK), shift_logits(f.shift_logits, kK), {}},
                      context.sequence, dk, context.part("k_shift"),
                      {part(d, kK), shift_logits(d_logits, kK)}, saved);
  }

  static kernels::HeadNorm qk_norm(int64_t heads) {
    return {.heads = heads, .epsilon = kQkNormEpsilon};
  }
  void normalize(Exec& exec, Saved& f) const {
    const int64_t tokens = f.projected.shape()[0];
    f.q = exec.empty({tokens, widths_[kQ]}, compute_);
    f.k = exec.empty({tokens, widths_[kK]}, compute_);
    f.q_inv_rms = exec.empty({tokens, h_.heads});
    f.k_inv_rms = exec.empty({tokens, h_.kv_heads});
    kernels::head_norm_forward(exec, qk_norm(h_.heads), part(f.projected, kQ), {}, q_norm_->value,
                               f.q, f.q_inv_rms);
    kernels::head_norm_forward(exec, qk_norm(h_.kv_heads), shifted_keys(f), {}, k_norm_->value, f.k,
                               f.k_inv_rms);
  }
  void normalize_backward(Exec& exec, const Saved& f, View dq, View dk) const {
    kernels::head_norm_backward(exec, qk_norm(h_.heads), dq, part(f.projected, kQ), {},
                                q_norm_->value, f.q_inv_rms, dq, {}, q_norm_->grad);
    kernels::head_norm_backward(exec, qk_norm(h_.kv_heads), dk, shifted_keys(f), {}, k_norm_->value,
                                f.k_inv_rms, dk, {}, k_norm_->grad);
  }

  // |q| <= sqrt(dk) max|weight| after the norm, likewise k; a rotation lengthens both alike, if at
  // all.
  Tensor score_bound(Exec& exec) const {
    const std::vector<float> q = download<float>(exec, q_norm_->value),
                             k = download<float>(exec, k_norm_->value);
    const auto largest = [&](const std::vector<float>& w, int64_t head) {
      float size = 0;
      for (int64_t c = 0; c < h_.dk; ++c) {
        size = std::max(size, std::abs(w[static_cast<size_t>(head * h_.dk + c)]));
      }
      return size;
    };
    // Rounding q and k to bf16 lengthens each by at most 2^-9.
    const float rounding = compute_ == DType::kBF16 ? 1.0f + 1.0f / 128 : 1.0f;
    const auto growth = static_cast<float>(o_.rope ? rotation_.growth() : 1.0);
    std::vector<float> bound;
    for (int64_t h = 0; h < h_.heads; ++h) {
      bound.push_back(rounding * growth * growth * std::sqrt(static_cast<float>(h_.dk)) *
                      largest(q, h) * largest(k, h / (h_.heads / h_.kv_heads)));
    }
    return tensor_of(exec, std::move(bound));
  }

  kernels::HeadNorm output_norm() const {
    return {.heads = h_.heads,
            .epsilon = kOutputNormEpsilon,
            .gate = o_.output_gate ? kernels::GateActivation::kSigmoid
                                   : kernels::GateActivation::kNone};
  }
  // Output norm and gate.
  Tensor finish(Exec& exec, Saved& f) const {
    if (!o_.output_norm && !o_.output_gate) return f.out;
    const Tensor y = exec.empty(f.out.shape(), compute_);
    if (o_.output_norm) {
      f.out_inv_rms = exec.empty({f.out.shape()[0], h_.heads});
      kernels::head_norm_forward(exec, output_norm(), f.out, part(f.projected, kGate),
                                 out_norm_->value, y, f.out_inv_rms);
    } else {
      kernels::output_gate_forward(exec, kernels::GateActivation::kSigmoid, f.out,
                                   part(f.projected, kGate), y);
    }
    return y;
  }
  Tensor finish_backward(Exec& exec, const Saved& f, const Tensor& d_y, const Tensor& d) const {
    if (!o_.output_norm && !o_.output_gate) return d_y;
    const Tensor d_out = exec.empty(f.out.shape(), compute_);
    if (o_.output_norm) {
      kernels::head_norm_backward(exec, output_norm(), d_y, f.out, part(f.projected, kGate),
                                  out_norm_->value, f.out_inv_rms, d_out, part(d, kGate),
                                  out_norm_->grad);
    } else {
      kernels::output_gate_backward(exec, kernels::GateActivation::kSigmoid, f.out,
                                    part(f.projected, kGate), d_y, d_out, part(d, kGate));
    }
    return d_out;
  }

  void rotate(Exec& exec, const Sequence& sequence, View q, View k,
              Rotation::Direction direction) const {
    rotation_.turn(exec, sequence, h_.heads, q, direction);
    rotation_.turn(exec, sequence, h_.kv_heads, k, direction);
  }

  AttentionInputs inputs(const Saved& f) const {
    return {queries(f), keys(f), values(f), forget_ ? ConstView(f.log_forget) : ConstView{}};
  }
  kernels::Pruning pruning(const Saved& f) const {
    return {.on = o_.acp,
            .log_epsilon = static_cast<float>(o_.acp_log_epsilon),
            .bound = f.bound.defined() ? ConstView(f.bound) : ConstView{}};
  }

  FoxOptions o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  int64_t layer_;
  int64_t widths_[4];  // of the parts of the projection
  Linear project_;
  std::optional<Linear> forget_;
  std::unique_ptr<Linear> shift_;  // with kv_shift
  TokenShift shift_k_, shift_v_;
  Rotation rotation_;
  AttentionRows rows_;
  std::unique_ptr<Linear> out_;
  Parameter* q_norm_ = nullptr;    // [heads * dk]
  Parameter* k_norm_ = nullptr;    // [kv_heads * dk]
  Parameter* out_norm_ = nullptr;  // [heads * dv]
};

}  // namespace

std::unique_ptr<Mixer> make_fox(const MixerBuild& build) {
  auto o = read_options<FoxOptions>(build.options, "fox");
  o.heads = resolve(build, o.heads);
  o.rotation = resolve(build, o.rotation);
  const auto with_pro = [&](const char* name, bool& part) {
    if (o.pro && !build.options.has(name)) part = true;
  };
  with_pro("qk_norm", o.qk_norm), with_pro("output_norm", o.output_norm);
  with_pro("output_gate", o.output_gate), with_pro("kv_shift", o.kv_shift);
  if (o.acp && !o.forget_gate) {
    throw ConfigError(
        "{} = true: pruning skips what was forgotten; set forget_gate = true, or leave acp out",
        place_of(build.options, "acp"));
  }
  if (o.rope) check_rotary(build, o.heads.dk, o.heads.dk);
  return std::make_unique<Fox>(build, o);
}

std::vector<FieldInfo> options_of_fox() { return describe<FoxOptions>(); }

}  // namespace weft
