#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/gates/decay_gate.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/context/mixer.h"
#include "layers/mixers/shell_convs.h"

namespace weft {

struct GatesOptions {
  HeadOptions heads;
  double gate_divisor = 16.0;
  bool short_conv = false;
  bool output_gate = true;
};
inline void gate_fields(FieldVisitor& f, GatesOptions& c) {
  f("gate_divisor", c.gate_divisor, "log decays are logsigmoid / this", above(0));
  f("short_conv", c.short_conv, kShortConvHelp);
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

// The second gate of a rule with two: GFW's decay of values, GateLoop's phase.
struct SecondGate {
  std::string name;   // of the projection
  int64_t width = 0;  // per head
  enum class Kind : uint8_t { kLogDecay, kPlain } kind = Kind::kLogDecay;
};

// The layer around a recurrence with a log decay per key channel and a second gate, each from a
// projection with a bias:
//   q, k, v = projections of x, convolved where asked for
//   a = logsigmoid(a_proj(x)) / divisor,   b = second gate
//   y = o_proj( RMSNorm_head(recurrence(q, k, v, a, b)) * silu(g_proj(x)) )
// Recurrence: its inputs and gradients are {q, k, v, a, b}. Gates belong to keys and values: where
// several query heads share those, they share the gates.
template <class Recurrence>
class GatesShell final : public Mixer {
 public:
  GatesShell(const MixerBuild& build, const GatesOptions& o, const SecondGate& second)
      : o_(o),
        h_(o.heads),
        second_(second),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build, parts(), build.hidden,
                 {.cut = Linear::Cut::kRows,
                  .queries = {0, h_.heads * h_.dk},
                  .gate = {h_.heads * h_.dk + h_.kv_heads * (h_.dk + h_.dv),
                           o.output_gate ? h_.heads * h_.dv : 0}}),
        gates_(build, {kv_part(h_, "a_proj", h_.dk), kv_part(h_, second.name, second.width)},
               build.hidden, {.cut = Linear::Cut::kRows, .bias = Linear::Bias::kYes}),
        recurrence_({h_, 1.0f / std::sqrt(static_cast<float>(h_.dk))}),
        norm_(build.declare({.name = build.scope + "o_norm.weight",
                             .global = {h_.dv},
                             .partial_over = {Axis::kTensor},
                             .init = Init::constant(1.0),
                             .weight_decay = false,
                             .f32 = true})),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}),
        convs_(build, h_, asked(o.short_conv)) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    Saved f;
    f.x = x;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    ShellConvs::Pass convs(convs_, exec, f.projected, context);
    f.qkv = convs.rows();
    f.raw = gates_.forward(exec, x, DType::kF32, saved);
    f.gates = exec.empty(f.raw.shape());
    kernels::decay_gate_forward(exec, decay_gate(), first(f.raw), first(f.gates));
    if (second_.kind == SecondGate::Kind::kLogDecay) {
      kernels::decay_gate_forward(exec, decay_gate(), second(f.raw), second(f.gates));
    } else {
      kernels::copy(exec, second(f.raw), second(f.gates));
    }
    convs.finish_keys_and_values(exec, saved);
    f.out = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved,
                                [&] {
                                  project_.finish_queries(exec, x, f.projected);
                                  convs.start_queries(exec);
                                  project_.finish_gate(exec, x, f.projected);
                                  convs.finish_queries(exec, saved);
                                });
    f.inv_rms = exec.empty({context.sequence.tokens(), h_.heads});
    const Tensor y = exec.empty(f.out.shape(), compute_);
    kernels::head_norm_forward(exec, head_norm(), f.out, part(f.projected, kGate), norm_.value, y,
                               f.inv_rms);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const Tensor d_out = exec.empty(f.out.shape(), compute_);
    kernels::head_norm_backward(exec, head_norm(), d_y, f.out, part(f.projected, kGate),
                                norm_.value, f.inv_rms, d_out, part(d, kGate), norm_.grad);
    project_.begin_backward(exec, d, f.x, saved);
    const Tensor d_gates = exec.empty(f.gates.shape());
    const Tensor d_qkv = convs_.place_for_dy(exec, d);
    recurrence_.backward(
        exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
        {part(d_qkv, kQ), part(d_qkv, kK), part(d_qkv, kV), first(d_gates), second(d_gates)},
        saved);
    auto convs = convs_.backward(exec, f.projected, d_qkv, d, context, saved);
    kernels::decay_gate_backward(exec, decay_gate(), first(f.raw), first(d_gates), first(d_gates));
    if (second_.kind == SecondGate::Kind::kLogDecay) {
      kernels::decay_gate_backward(exec, decay_gate(), second(f.raw), second(d_gates),
                                   second(d_gates));
    }
    const Tensor dx_gates =
        gates_.backward(exec, in_type(exec, d_gates, compute_), DType::kF32, saved);
    if (convs) convs->finish(exec);
    const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
    kernels::add(exec, dx, dx_gates, dx);
    return dx;
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + gates_.out() + h_.heads * h_.dv) +
           convs_.flops_per_token() + recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor x;           // the layer's input
    Tensor projected;   // [tokens, q | k | v | gate]
    Tensor qkv;         // after the convolutions; without any it is `projected`
    Tensor raw, gates;  // [tokens, first | second] f32, before and after
    Tensor out;         // [tokens, heads * dv]
    Tensor inv_rms;     // [tokens, heads]
  };
  enum Part { kQ, kK, kV, kGate };

  std::vector<Linear::Part> parts() const {
    std::vector<Linear::Part> parts = {{"q_proj", h_.heads * h_.dk, h_.dk},
                                       kv_part(h_, "k_proj", h_.dk),
                                       kv_part(h_, "v_proj", h_.dv)};
    if (o_.output_gate) parts.push_back({"g_proj", h_.heads * h_.dv, h_.dv});
    return parts;
  }
  View part(const Tensor& projected, Part which) const {
    const int64_t widths[] = {h_.heads * h_.dk, h_.kv_heads * h_.dk, h_.kv_heads * h_.dv,
                              o_.output_gate ? h_.heads * h_.dv : 0};
    int64_t begin = 0;
    for (int i = 0; i < which; ++i) begin += widths[i];
    return widths[which] == 0 ? View{} : projected.view().columns(begin, widths[which]);
  }
  View first(const Tensor& gates) const { return gates.view().columns(0, h_.kv_heads * h_.dk); }
  View second(const Tensor& gates) const {
    return gates.view().columns(h_.kv_heads * h_.dk, h_.kv_heads * second_.width);
  }
  typename Recurrence::Inputs inputs(const Saved& f) const {
    return {part(f.qkv, kQ), part(f.qkv, kK), part(f.qkv, kV), first(f.gates), second(f.gates)};
  }
  kernels::DecayGate decay_gate() const { return {.divisor = static_cast<float>(o_.gate_divisor)}; }
  kernels::HeadNorm head_norm() const {
    return {
        .heads = h_.heads,
        .epsilon = 1e-5f,
        .gate = o_.output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
  }

  GatesOptions o_;
  HeadOptions h_;
  SecondGate second_;
  DType compute_;
  int64_t hidden_;
  Linear project_, gates_;
  Recurrence recurrence_;
  Parameter& norm_;  // [dv]
  Linear out_;
  ShellConvs convs_;
};

}  // namespace weft
