// Gated slot attention: keys and values are written to a few slots that forget, and the slots are
// read by softmax.   With a = e^{g_t}, w = 1 - a:
//   K_t = diag(a) K_{t-1} + w^T k_t,   V_t = diag(a) V_{t-1} + w^T v_t
//   o_t = softmax(K_t q_t^T) V_t
//   y = o_proj( RMSNorm( silu(o) ) ), the norm over all heads at once
// q, k, v are silu of projections; g = logsigmoid(f_proj(x)) / 8, one per slot.
#include "kernels/gates/activation.h"
#include "kernels/gates/decay_gate.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/wide_norm.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/slots.h"

namespace weft {
namespace {

struct GsaOptions {
  HeadOptions heads;
  int64_t slots = 0;
  double gate_divisor = 8.0;
};

void fields(FieldVisitor& f, GsaOptions& c) {
  fields(f, c.heads);
  f("slots", c.slots, "slots of a head's memory; 0: dk", between(0, kLargestExtent));
  f("gate_divisor", c.gate_divisor, "log decays are logsigmoid / this", above(0));
}

constexpr auto kSilu = kernels::Activation::kSilu;

class Gsa final : public Mixer {
 public:
  Gsa(const MixerBuild& build, const GsaOptions& o)
      : o_(o),
        h_(o.heads),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build,
                 {{"q_proj", h_.heads * h_.dk, h_.dk},
                  kv_part(h_, "k_proj", h_.dk),
                  kv_part(h_, "v_proj", h_.dv),
                  kv_part(h_, "f_proj", o.slots)},
                 build.hidden, {.cut = Linear::Cut::kRows, .queries = {0, h_.heads * h_.dk}}),
        recurrence_({h_, o.slots, 1.0f}),
        norm_(build, "g_norm.weight", h_.heads * h_.dv, h_.dv, 1, build.norm_epsilon),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const int64_t tokens = context.sequence.tokens();
    Saved f;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.qkv = exec.empty({tokens, width(kQ) + width(kK) + width(kV)}, compute_);
    const auto activate = [&](int64_t begin, int64_t count) {
      kernels::activation_forward(exec, kSilu, f.projected.view().columns(begin, count),
                                  f.qkv.view().columns(begin, count));
    };
    activate(width(kQ), width(kK) + width(kV));
    f.log_decay = exec.empty({tokens, width(kForget)});
    kernels::decay_gate_forward(exec, decay_gate(), part(f.projected, kForget), f.log_decay);
    f.out = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved,
                                [&] {
                                  project_.finish_queries(exec, x, f.projected);
                                  activate(0, width(kQ));
                                });
    f.active = exec.empty(f.out.shape(), compute_);
    kernels::activation_forward(exec, kSilu, f.out, f.active);
    const Tensor y = exec.empty(f.out.shape(), compute_);
    f.inv_rms = norm_.forward(exec, f.active, y);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d_out = exec.empty(f.out.shape(), compute_);
    norm_.backward(exec, d_y, f.active, f.inv_rms, d_out);
    kernels::activation_backward(exec, kSilu, f.out, d_out, d_out);
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const Tensor d_decay = exec.empty(f.log_decay.shape());
    recurrence_.backward(exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
                         {part(d, kQ), part(d, kK), part(d, kV), d_decay}, saved);
    kernels::activation_backward(exec, kSilu, qkv_of(f.projected), qkv_of(d), qkv_of(d));
    kernels::decay_gate_backward(exec, decay_gate(), part(f.projected, kForget), d_decay,
                                 part(d, kForget));
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + h_.heads * h_.dv) +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor projected;    // [tokens, q | k | v | f]
    Tensor qkv;          // [tokens, q | k | v], silu
    Tensor log_decay;    // [tokens, kv_heads * slots] f32
    Tensor out, active;  // [tokens, heads * dv], of the recurrence and its silu
    Tensor inv_rms;      // [tokens, 1]
  };
  enum Part { kQ, kK, kV, kForget };

  int64_t width(Part which) const {
    const int64_t widths[] = {h_.heads * h_.dk, h_.kv_heads * h_.dk, h_.kv_heads * h_.dv,
                              h_.kv_heads * o_.slots};
    return widths[which];
  }
  View part(const Tensor& projected, Part which) const {
    int64_t begin = 0;
    for (int i = 0; i < which; ++i) begin += width(static_cast<Part>(i));
    return projected.view().columns(begin, width(which));
  }
  View qkv_of(const Tensor& projected) const {
    return projected.view().columns(0, width(kQ) + width(kK) + width(kV));
  }
  SlotsRecurrence::Inputs inputs(const Saved& f) const {
    return {part(f.qkv, kQ), part(f.qkv, kK), part(f.qkv, kV), f.log_decay};
  }
  kernels::DecayGate decay_gate() const { return {.divisor = static_cast<float>(o_.gate_divisor)}; }

  GsaOptions o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_;
  SlotsRecurrence recurrence_;
  WideNorm norm_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_gsa(const MixerBuild& build) {
  auto o = read_options<GsaOptions>(build.options, "gsa");
  o.heads = resolve(build, o.heads);
  if (o.slots == 0) o.slots = o.heads.dk;
  return std::make_unique<Gsa>(build, o);
}

std::vector<FieldInfo> options_of_gsa() { return describe<GsaOptions>(); }

}  // namespace weft
