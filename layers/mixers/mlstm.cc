// mLSTM. q, k, v and two gates per head, i = 15 tanh(igate(x) / 15), f = 15 tanh(fgate(x) / 15), l
// = logsigmoid(f):
//   C_t = e^{l_t} C_{t-1} + e^{i_t} k_t^T v_t,   n_t = e^{l_t} n_{t-1} + e^{i_t} k_t,   h_t = s q_t
//   C_t / max(|s q_t . n_t|, 1)
// (stabilised, see layers/recurrence/mlstm.h; s = dk^{-1/2}),   y = o_proj( sigmoid(ogate(x)) *
// LayerNorm_head(h) )
#include <cmath>

#include "kernels/activation.h"
#include "kernels/norm.h"
#include "layers/convert.h"
#include "layers/linear.h"
#include "layers/mixers/mixer.h"
#include "layers/recurrence/mlstm.h"

namespace weft {
namespace {

constexpr float kCap = 15.0f;
constexpr float kNormEpsilon = 1e-6f;

struct MlstmOptions {
  int64_t heads = 0, dk = 0, dv = 0;
};

void fields(FieldVisitor& f, MlstmOptions& c) {
  f("heads", c.heads, "must be given", at_least(0));
  f("dk", c.dk, "key width per head; 0: hidden / heads", at_least(0));
  f("dv", c.dv, "value width per head; 0: hidden / heads", at_least(0));
}

// Forget gates start open, the more so the later the head: linspace(3, 6).
Init forget_bias(int64_t heads) {
  return Init::each([heads](int64_t h) {
    return heads == 1 ? 3.0 : 3.0 + 3.0 * static_cast<double>(h) / static_cast<double>(heads - 1);
  });
}

class Mlstm final : public Mixer {
 public:
  Mlstm(const MixerBuild& build, const HeadOptions& h)
      : h_(h),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build,
                 {{"q_proj", h.heads * h.dk, h.dk},
                  {"k_proj", h.heads * h.dk, h.dk},
                  {"v_proj", h.heads * h.dv, h.dv},
                  {"ogate", h.heads * h.dv, h.dv}},
                 build.hidden, {.cut = Linear::Cut::kRows}),
        input_gate_(build, {{"igate", h.heads}}, build.hidden, gate_options(Init::normal(0.1))),
        forget_gate_(build, {{"fgate", h.heads}}, build.hidden, gate_options(forget_bias(h.heads))),
        recurrence_({h.heads, h.dk, h.dv, 1.0f / std::sqrt(static_cast<float>(h.dk))}),
        norm_(build.store.declare({.name = build.scope + "norm.weight",
                                   .global = {h.heads * h.dv},
                                   .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = h.dv}},
                                   .init = Init::constant(1.0),
                                   .weight_decay = false,
                                   .f32 = true})),
        out_(build, {{"o_proj", build.hidden}}, h.heads * h.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    Saved f;
    f.projected = project_.forward(exec, x, compute_, saved);
    f.input = capped(exec, input_gate_.forward(exec, x, DType::kF32, saved));
    f.forget = capped(exec, forget_gate_.forward(exec, x, DType::kF32, saved));
    f.centered =
        recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved);
    kernels::center_heads(exec, h_.heads, f.centered, f.centered);
    f.inv_rms = exec.empty({context.sequence.tokens(), h_.heads});
    const Tensor y = exec.empty(f.centered.shape(), compute_);
    kernels::head_norm_forward(exec, head_norm(), f.centered, part(f.projected, kGate), norm_.value,
                               y, f.inv_rms);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const Tensor d_out = exec.empty(f.centered.shape());
    kernels::head_norm_backward(exec, head_norm(), d_y, f.centered, part(f.projected, kGate),
                                norm_.value, f.inv_rms, d_out, part(d, kGate), norm_.grad);
    kernels::center_heads(exec, h_.heads, d_out, d_out);
    const Tensor d_input = exec.empty(f.input.value.shape()),
                 d_forget = exec.empty(d_input.shape());
    recurrence_.backward(exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
                         {part(d, kQ), part(d, kK), part(d, kV), d_input, d_forget}, saved);
    const Tensor dx_forget =
        forget_gate_.backward(exec, uncapped(exec, f.forget, d_forget), DType::kF32, saved);
    const Tensor dx_input =
        input_gate_.backward(exec, uncapped(exec, f.input, d_input), DType::kF32, saved);
    const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
    kernels::add(exec, dx, dx_forget, dx);
    kernels::add(exec, dx, dx_input, dx);
    return dx;
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + 2 * h_.heads + h_.heads * h_.dv) +
           recurrence_.flops_per_token();
  }

 private:
  struct Gate {
    Tensor raw;    // [tokens, heads] f32, over kCap
    Tensor value;  // kCap tanh(raw)
  };
  struct Saved {
    Tensor projected;  // [tokens, q | k | v | output gate]
    Gate input, forget;
    Tensor centered;  // [tokens, heads * dv]: h without the mean of its head
    Tensor inv_rms;   // [tokens, heads]
  };
  enum Part { kQ, kK, kV, kGate };

  static Linear::Options gate_options(const Init& bias) {
    return {.init = Init::zeros(),
            .cut = Linear::Cut::kRows,
            .bias = Linear::Bias::kYes,
            .bias_init = bias};
  }
  static Gate capped(Exec& exec, const Tensor& z) {
    kernels::scale(exec, z, 1.0f / kCap, z);
    const Tensor value = exec.empty(z.shape());
    kernels::activation_forward(exec, kernels::Activation::kTanh, z, value);
    kernels::scale(exec, value, kCap, value);
    return {z, value};
  }
  // The gradient before the cap, in the type that the projection multiplies.
  Tensor uncapped(Exec& exec, const Gate& gate, const Tensor& d) const {
    const Tensor out = exec.empty(d.shape(), compute_);
    kernels::activation_backward(exec, kernels::Activation::kTanh, gate.raw, d, out);
    return out;
  }
  View part(const Tensor& rows, Part which) const {
    const int64_t key = h_.heads * h_.dk, value = h_.heads * h_.dv;
    if (which == kQ || which == kK) return rows.view().columns(which == kQ ? 0 : key, key);
    return rows.view().columns(2 * key + (which == kV ? 0 : value), value);
  }
  MlstmInputs inputs(const Saved& f) const {
    return {part(f.projected, kQ), part(f.projected, kK), part(f.projected, kV), f.input.value,
            f.forget.value};
  }
  kernels::HeadNorm head_norm() const {
    return {.heads = h_.heads, .epsilon = kNormEpsilon, .gate = kernels::GateActivation::kSigmoid};
  }

  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_, input_gate_, forget_gate_;
  MlstmRecurrence recurrence_;
  Parameter& norm_;  // [heads * dv]
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_mlstm(const MixerBuild& build) {
  const auto o = read_options<MlstmOptions>(build.options, "mlstm");
  return std::make_unique<Mlstm>(build, resolve(build, {o.heads, o.heads, o.dk, o.dv}));
}

std::vector<FieldInfo> options_of_mlstm() { return describe<MlstmOptions>(); }

}  // namespace weft
