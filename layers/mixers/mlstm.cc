// mLSTM. q, k, v and two gates per head, i = 15 tanh(igate(x) / 15) and f = 15 tanh(fgate(x) / 15);
// with l = logsigmoid(f) and s = dk^{-1/2}:
//   C_t = e^{l_t} C_{t-1} + e^{i_t} k_t^T v_t,   n_t = e^{l_t} n_{t-1} + e^{i_t} k_t
//   h_t = s q_t C_t / max(|s q_t . n_t|, 1)      (stabilised, see layers/recurrence/mlstm.h)
//   y = o_proj( sigmoid(ogate(x)) * LayerNorm_head(h) )
#include <cmath>

#include "kernels/gates/activation.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/mlstm.h"

namespace weft {
namespace {

constexpr float kCap = 15.0f;
constexpr float kNormEpsilon = 1e-6f;

struct MlstmOptions {
  int64_t heads = 0, dk = 0, dv = 0;
};

void fields(FieldVisitor& f, MlstmOptions& c) { head_fields(f, c.heads, c.dk, c.dv); }

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
                 build.hidden,
                 {.cut = Linear::Cut::kRows,
                  .queries = {0, h.heads * h.dk},
                  .gate = {h.heads * (2 * h.dk + h.dv), h.heads * h.dv}}),
        gates_(build, {{"igate", h.heads}, {"fgate", h.heads}}, build.hidden,
               {.init = Init::zeros(), .cut = Linear::Cut::kRows}),
        input_bias_(gate_bias(build, "igate.bias", h.heads, Init::normal(0.1))),
        forget_bias_(gate_bias(build, "fgate.bias", h.heads, forget_bias(h.all_heads))),
        recurrence_({h.heads, h.dk, h.dv, 1.0f / std::sqrt(static_cast<float>(h.dk))}),
        norm_(build.declare({.name = build.scope + "norm.weight",
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
    f.x = x;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.gates = capped(exec, gates_.forward(exec, x, DType::kF32, saved));
    f.centered = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence),
                                     saved, [&] {
                                       project_.finish_queries(exec, x, f.projected);
                                       project_.finish_gate(exec, x, f.projected);
                                     });
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
    project_.begin_backward(exec, d, f.x, saved);
    kernels::center_heads(exec, h_.heads, d_out, d_out);
    const Tensor d_gates = exec.empty(f.gates.value.shape());
    recurrence_.backward(exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
                         {part(d, kQ), part(d, kK), part(d, kV), input(d_gates), forget(d_gates)},
                         saved);
    const Tensor dx_gates =
        gates_.backward(exec, uncapped(exec, f.gates, d_gates), DType::kF32, saved);
    const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
    kernels::add(exec, dx, dx_gates, dx);
    return dx;
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + 2 * h_.heads + h_.heads * h_.dv) +
           recurrence_.flops_per_token();
  }

 private:
  struct Gates {
    Tensor raw;    // [tokens, input | forget] f32, over kCap
    Tensor value;  // kCap tanh(raw)
  };
  struct Saved {
    Tensor x;          // the layer's input
    Tensor projected;  // [tokens, q | k | v | output gate]
    Gates gates;
    Tensor centered;  // [tokens, heads * dv]: h without the mean of its head
    Tensor inv_rms;   // [tokens, heads]
  };
  enum Part { kQ, kK, kV, kGate };

  // Apart from the projection, because its gradient is summed in f32: it is what little is left of
  // terms that cancel, since shifting all input gates of a head changes next to nothing.
  static Parameter& gate_bias(const Build& build, const char* name, int64_t heads,
                              const Init& init) {
    return build.declare({.name = build.scope + name,
                          .global = {heads},
                          .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                          .init = init,
                          .weight_decay = false,
                          .f32 = true});
  }
  View input(const Tensor& gates) const { return gates.view().columns(0, h_.heads); }
  View forget(const Tensor& gates) const { return gates.view().columns(h_.heads, h_.heads); }

  Gates capped(Exec& exec, const Tensor& z) const {
    kernels::add_bias(exec, input_bias_.value, input(z));
    kernels::add_bias(exec, forget_bias_.value, forget(z));
    kernels::scale(exec, z, 1.0f / kCap, z);
    const Tensor value = exec.empty(z.shape());
    kernels::activation_forward(exec, kernels::Activation::kTanh, z, value);
    kernels::scale(exec, value, kCap, value);
    return {z, value};
  }
  // The gradient before the cap, in the type that the projection multiplies; adds to those of the
  // biases.
  Tensor uncapped(Exec& exec, const Gates& gates, const Tensor& d) const {
    kernels::activation_backward(exec, kernels::Activation::kTanh, gates.raw, d, d);
    kernels::column_sum(exec, input(d), input_bias_.grad);
    kernels::column_sum(exec, forget(d), forget_bias_.grad);
    return in_type(exec, d, compute_);
  }
  View part(const Tensor& rows, Part which) const {
    const int64_t key = h_.heads * h_.dk, value = h_.heads * h_.dv;
    if (which == kQ || which == kK) return rows.view().columns(which == kQ ? 0 : key, key);
    return rows.view().columns(2 * key + (which == kV ? 0 : value), value);
  }
  MlstmInputs inputs(const Saved& f) const {
    return {part(f.projected, kQ), part(f.projected, kK), part(f.projected, kV),
            input(f.gates.value), forget(f.gates.value)};
  }
  kernels::HeadNorm head_norm() const {
    return {.heads = h_.heads, .epsilon = kNormEpsilon, .gate = kernels::GateActivation::kSigmoid};
  }

  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_, gates_;
  Parameter &input_bias_, &forget_bias_;  // [heads]
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
