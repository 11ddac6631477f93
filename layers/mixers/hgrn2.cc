// HGRN2: a forget gate per key channel, and its complement as the key.
//   a_t = l + (1 - l) sigmoid(f_proj(x_t)),   M_t = diag(a_t) M_{t-1} + (1 - a_t)^T v_t
//   o_t = dk^{-1/2} silu(q_proj(x_t)) M_t
//   y = o_proj( RMSNorm(o) ), the norm over all heads at once
// The lower bounds l are those of the published model, which grow with depth: one learned tensor
// for all layers gives each its own by a cumulative softmax (layers/basic/lower_bounds.h), the
// first none. With lower_bounds = "own" every layer has its own: none, or a learned vector that
// starts at `lower_bound`.
#include <cmath>

#include "kernels/gates/activation.h"
#include "kernels/gates/decay_gate.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/lower_bounds.h"
#include "layers/basic/wide_norm.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

struct Hgrn2Options {
  HeadOptions heads;
  double lower_bound = 0.0;
  std::string lower_bounds = "shared";
};

void fields(FieldVisitor& f, Hgrn2Options& c) {
  fields(f, c.heads);
  f.choice("lower_bounds", c.lower_bounds, {"shared", "own"},
           "of the forget gates. shared: from one learned tensor for the whole model, growing with "
           "depth; own: as lower_bound says, layer by layer, which giving lower_bound implies");
  f("lower_bound", c.lower_bound,
    "own: where a layer's learned lower bounds start, below 1; 0: none, not learned", at_least(0));
}

constexpr const char* kSharedBounds = "hgrn2.lower_bounds";

// The tensor of the whole model: the first layer that reads it declares it. Every pipeline stage
// with such layers has it. During a step row l of its gradient is that of layer l's bounds, which
// becomes that of the tensor at the end.
Parameter& shared_bounds(const MixerBuild& build, const HeadOptions& h) {
  const std::string name = kSharedBounds;
  const Shape shape{build.layers, build.whole(h.kv_heads * h.dk, h.kv_replicas)};
  if (Parameter* found = build.store.find(name)) {
    if (found->spec.global == shape) return *found;
    throw ConfigError(
        "{} = \"shared\": another layer's forget gates have {} channels, these {}; give all such "
        "layers the same heads and dk, or set lower_bounds = \"own\"",
        place_of(build.options, "lower_bounds"), found->spec.global[1], shape[1]);
  }
  return build.declare(
      {.name = name,
       .global = {build.layers, h.kv_heads * h.dk},
       .splits = {Split{.dim = 1, .axis = Axis::kTensor, .replicas = h.kv_replicas, .unit = h.dk}},
       .init = Init::zeros(),
       .weight_decay = false,
       .f32 = true});
}

class Hgrn2 final : public Mixer {
 public:
  Hgrn2(const MixerBuild& build, const Hgrn2Options& o)
      : h_(o.heads),
        compute_(build.compute),
        hidden_(build.hidden),
        layer_(build.layer),
        project_(build,
                 {{"q_proj", h_.heads * h_.dk, h_.dk},
                  kv_part(h_, "f_proj", h_.dk),
                  kv_part(h_, "i_proj", h_.dv)},
                 build.hidden, {.cut = Linear::Cut::kRows, .queries = {0, h_.heads * h_.dk}}),
        recurrence_({h_, 1.0f / std::sqrt(static_cast<float>(h_.dk))}),
        norm_(build, "g_norm.weight", h_.heads * h_.dv, h_.dv, 1, build.norm_epsilon),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
    if (o.lower_bounds == "shared") {
      finishes_ = build.store.find(kSharedBounds) == nullptr;
      if (build.layers > 1) shared_ = &shared_bounds(build, h_);
    } else if (o.lower_bound > 0) {
      lower_ = &declare_vector(build, "lower_bound", h_.kv_heads * h_.dk, h_.dk, o.lower_bound,
                               h_.kv_replicas);
    }
  }

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const int64_t tokens = sequence.tokens();
    Saved f;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.q = exec.empty({tokens, h_.heads * h_.dk}, compute_);
    f.k = exec.empty({tokens, h_.kv_heads * h_.dk}, compute_);
    f.log_decay = exec.empty(f.k.shape());
    f.lower = lower(exec);
    kernels::tied_gates_forward(exec, part(f.projected, kForget), given(f.lower), f.log_decay, f.k);
    f.out = recurrence_.forward(exec, inputs(f), sequence, context.part(kRecurrence), saved, [&] {
      project_.finish_queries(exec, x, f.projected);
      kernels::activation_forward(exec, kernels::Activation::kSilu, part(f.projected, kQ), f.q);
    });
    const Tensor y = exec.empty(f.out.shape(), compute_);
    f.inv_rms = norm_.forward(exec, f.out, y);
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
    norm_.backward(exec, d_y, f.out, f.inv_rms, d_out);
    const Tensor d_decay = exec.empty(f.log_decay.shape()), dk = exec.empty(f.k.shape());
    const View dq = part(d, kQ);
    recurrence_.backward(exec, inputs(f), sequence, d_out, context.part(kRecurrence),
                         {dq, dk, part(d, kInput), d_decay}, saved);
    kernels::activation_backward(exec, kernels::Activation::kSilu, part(f.projected, kQ), dq, dq);
    Tensor d_lower;
    if (lower_ != nullptr) d_lower = lower_->grad;
    if (shared_ != nullptr && layer_ > 0) d_lower = shared_->grad.row(layer_);
    kernels::tied_gates_backward(exec, {.f = part(f.projected, kForget),
                                        .lower = given(f.lower),
                                        .dg = d_decay,
                                        .dk = dk,
                                        .df = part(d, kForget),
                                        .d_lower = wanted(d_lower)});
    return project_.backward(exec, d, DType::kF32, saved);
  }

  void finish_gradients(Exec& exec) const override {
    if (shared_ != nullptr && finishes_) {
      lower_bounds_backward(exec, shared_->value, shared_->grad);
    }
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + h_.heads * h_.dv) +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor projected;  // [tokens, q | f | i]
    Tensor q;          // silu
    Tensor k;          // 1 - a
    Tensor log_decay;  // log a, f32
    Tensor lower;      // [kv_heads * dk], or undefined: 0
    Tensor out;        // [tokens, heads * dv]
    Tensor inv_rms;    // [tokens, 1]
  };
  enum Part { kQ, kForget, kInput };

  // One number per channel of every head: cut with the heads.
  static Parameter& declare_vector(const MixerBuild& build, const char* name, int64_t width,
                                   int64_t unit, double start, int replicas = 1) {
    return build.declare(
        {.name = build.scope + name,
         .global = {width},
         .splits = {Split{.dim = 0, .axis = Axis::kTensor, .replicas = replicas, .unit = unit}},
         .init = Init::constant(start),
         .weight_decay = false,
         .f32 = true});
  }

  View part(const Tensor& projected, Part which) const {
    const int64_t q = h_.heads * h_.dk, k = h_.kv_heads * h_.dk, v = h_.kv_heads * h_.dv;
    if (which == kQ) return projected.view().columns(0, q);
    return which == kForget ? projected.view().columns(q, k) : projected.view().columns(q + k, v);
  }
  Tensor lower(Exec& exec) const {
    if (lower_ != nullptr) return lower_->value;
    if (shared_ == nullptr || layer_ == 0) return {};
    const Tensor bound = exec.empty({shared_->shape[1]});
    lower_bound_forward(exec, layer_, shared_->value, bound);
    return bound;
  }
  DiagonalRecurrence::Inputs inputs(const Saved& f) const {
    return {f.q, f.k, part(f.projected, kInput), f.log_decay};
  }

  HeadOptions h_;
  DType compute_;
  int64_t hidden_, layer_;
  Linear project_;
  DiagonalRecurrence recurrence_;
  WideNorm norm_;
  Parameter* lower_ = nullptr;   // [kv_heads * dk]
  bool finishes_ = false;        // declared the shared one, so finishes its gradient
  Parameter* shared_ = nullptr;  // [layers, kv_heads * dk]; neither: no lower bound
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_hgrn2(const MixerBuild& build) {
  auto o = read_options<Hgrn2Options>(build.options, "hgrn2");
  o.heads = resolve(build, o.heads);
  if (o.lower_bound >= 1) {
    throw ConfigError(
        "{} = {}: a forget gate that never forgets; the bound must be below 1, 0.9 works",
        place_of(build.options, "lower_bound"), o.lower_bound);
  }
  const bool said = build.options.has("lower_bounds");
  if (said && o.lower_bounds == "shared" && o.lower_bound > 0) {
    throw ConfigError(
        "{} = {}: bounds that the whole model shares start as published; leave lower_bound out, or "
        "set lower_bounds = \"own\"",
        place_of(build.options, "lower_bound"), o.lower_bound);
  }
  if (!said && build.options.has("lower_bound")) o.lower_bounds = "own";
  return std::make_unique<Hgrn2>(build, o);
}

std::vector<FieldInfo> options_of_hgrn2() { return describe<Hgrn2Options>(); }

}  // namespace weft
