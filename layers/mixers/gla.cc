// Gated linear attention.   M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with a log decay per key channel from a projection of low rank, g = logsigmoid(gk_proj(x)) / 16.
//   y = o_proj( RMSNorm_head(o) * silu(g_proj(x)) )
#include <cmath>

#include "kernels/gates/decay_gate.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/context/mixer.h"
#include "layers/mixers/shell_convs.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

struct GlaOptions {
  HeadOptions heads;
  int64_t gate_rank = 16;
  double gate_divisor = 16.0;
  double gate_floor = 0.0;
  bool short_conv = false;
  bool output_gate = true;
};

void fields(FieldVisitor& f, GlaOptions& c) {
  fields(f, c.heads);
  f("gate_rank", c.gate_rank, "rank of the projection that gives the decays",
    between(1, kLargestExtent));
  f("gate_divisor", c.gate_divisor, "log decays are logsigmoid / this", above(0));
  f("gate_floor", c.gate_floor, "smallest log decay; 0: none", {.max = 0});
  f("short_conv", c.short_conv, kShortConvHelp);
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

// Published: xavier uniform with gain 2^{-5/2}.
Init gate_init(int64_t in, int64_t out) {
  const double limit = std::exp2(-2.5) * std::sqrt(6.0 / static_cast<double>(in + out));
  return Init::uniform(-limit, limit);
}

std::vector<Linear::Part> parts_of(const GlaOptions& o) {
  const HeadOptions& h = o.heads;
  std::vector<Linear::Part> parts = {
      {"q_proj", h.heads * h.dk, h.dk}, kv_part(h, "k_proj", h.dk), kv_part(h, "v_proj", h.dv)};
  if (o.output_gate) parts.push_back({"g_proj", h.heads * h.dv, h.dv});
  return parts;
}

class Gla final : public Mixer {
 public:
  Gla(const MixerBuild& build, const GlaOptions& o)
      : o_(o),
        h_(o.heads),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build, parts_of(o), build.hidden,
                 {.cut = Linear::Cut::kRows,
                  .queries = {0, width(kQ)},
                  .gate = {begin(kGate), width(kGate)}}),
        gate_down_(build, {{"gk_proj.0", o.gate_rank}}, build.hidden,
                   {.init = gate_init(build.hidden, o.gate_rank), .partial_over = {Axis::kTensor}}),
        gate_up_(build, {kv_part(h_, "gk_proj.1", h_.dk)}, o.gate_rank,
                 {.init = gate_init(o.gate_rank, build.whole(h_.kv_heads * h_.dk, h_.kv_replicas)),
                  .cut = Linear::Cut::kRows,
                  .bias = Linear::Bias::kYes}),
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
    const Sequence& sequence = context.sequence;
    const int64_t tokens = sequence.tokens();
    Saved f;
    f.x = x;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    ShellConvs::Pass convs(convs_, exec, f.projected, context);
    f.qkv = convs.rows();
    const Tensor low = gate_down_.forward(exec, x, compute_, saved);
    f.gate = gate_up_.forward(exec, low, DType::kF32, saved);
    f.log_decay = exec.empty(f.gate.shape());
    kernels::decay_gate_forward(exec, decay_gate(), f.gate, f.log_decay);
    convs.finish_keys_and_values(exec, saved);
    f.out = recurrence_.forward(exec, inputs(f), sequence, context.part(kRecurrence), saved, [&] {
      project_.finish_queries(exec, x, f.projected);
      convs.start_queries(exec);
      project_.finish_gate(exec, x, f.projected);
      convs.finish_queries(exec, saved);
    });
    f.inv_rms = exec.empty({tokens, h_.heads});
    const Tensor y = exec.empty(f.out.shape(), compute_);
    kernels::head_norm_forward(exec, head_norm(), f.out, part(f.projected, kGate), norm_.value, y,
                               f.inv_rms);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const Tensor d_out = exec.empty(f.out.shape(), compute_);
    kernels::head_norm_backward(exec, head_norm(), d_y, f.out, part(f.projected, kGate),
                                norm_.value, f.inv_rms, d_out, part(d, kGate), norm_.grad);
    project_.begin_backward(exec, d, f.x, saved);
    const Tensor d_decay = exec.empty(f.log_decay.shape());
    const Tensor d_qkv = convs_.place_for_dy(exec, d);
    recurrence_.backward(exec, inputs(f), sequence, d_out, context.part(kRecurrence),
                         {part(d_qkv, kQ), part(d_qkv, kK), part(d_qkv, kV), d_decay}, saved);
    auto convs = convs_.backward(exec, f.projected, d_qkv, d, context, saved);
    const Tensor d_gate = exec.empty(f.gate.shape(), compute_);
    kernels::decay_gate_backward(exec, decay_gate(), f.gate, d_decay, d_gate);
    const Tensor d_low = gate_up_.backward(exec, d_gate, compute_, saved);
    const Tensor dx_gate = gate_down_.backward(exec, d_low, DType::kF32, saved);
    if (convs) convs->finish(exec);
    const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
    kernels::add(exec, dx, dx_gate, dx);
    return dx;
  }

  double flops_per_token(int64_t) const override {
    const int64_t weights = hidden_ * (project_.out() + h_.heads * h_.dv + o_.gate_rank) +
                            o_.gate_rank * h_.kv_heads * h_.dk;
    return 2.0 * static_cast<double>(weights) + convs_.flops_per_token() +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor x;          // the layer's input
    Tensor projected;  // [tokens, q | k | v | gate]
    Tensor qkv;        // after the convolutions; without any it is `projected`
    Tensor gate;       // [tokens, kv_heads * dk] f32, before the logsigmoid
    Tensor log_decay;  // after it
    Tensor out;        // [tokens, heads * dv]
    Tensor inv_rms;    // [tokens, heads]
  };
  enum Part { kQ, kK, kV, kGate };

  int64_t width(Part which) const {
    const int64_t widths[] = {h_.heads * h_.dk, h_.kv_heads * h_.dk, h_.kv_heads * h_.dv,
                              o_.output_gate ? h_.heads * h_.dv : 0};
    return widths[which];
  }
  int64_t begin(Part which) const {
    int64_t begin = 0;
    for (int i = 0; i < which; ++i) begin += width(static_cast<Part>(i));
    return begin;
  }
  View part(const Tensor& projected, Part which) const {
    if (width(which) == 0) return {};
    return projected.view().columns(begin(which), width(which));
  }
  DiagonalRecurrence::Inputs inputs(const Saved& f) const {
    return {part(f.qkv, kQ), part(f.qkv, kK), part(f.qkv, kV), f.log_decay};
  }
  kernels::DecayGate decay_gate() const {
    kernels::DecayGate gate{.divisor = static_cast<float>(o_.gate_divisor)};
    if (o_.gate_floor < 0) gate.floor = static_cast<float>(o_.gate_floor);
    return gate;
  }
  kernels::HeadNorm head_norm() const {
    return {
        .heads = h_.heads,
        .epsilon = kHeadNormEpsilon,
        .gate = o_.output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
  }

  GlaOptions o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_, gate_down_, gate_up_;
  DiagonalRecurrence recurrence_;
  Parameter& norm_;  // [dv]
  Linear out_;
  ShellConvs convs_;
};

}  // namespace

std::unique_ptr<Mixer> make_gla(const MixerBuild& build) {
  auto o = read_options<GlaOptions>(build.options, "gla");
  o.heads = resolve(build, o.heads);
  return std::make_unique<Gla>(build, o);
}

std::vector<FieldInfo> options_of_gla() { return describe<GlaOptions>(); }

}  // namespace weft
