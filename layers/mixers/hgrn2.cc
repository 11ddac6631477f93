// HGRN2: a forget gate per key channel, and its complement as the key.
//   a_t = l + (1 - l) sigmoid(f_proj(x_t)),   M_t = diag(a_t) M_{t-1} + (1 - a_t)^T v_t
//   o_t = dk^{-1/2} silu(q_proj(x_t)) M_t
//   y = o_proj( RMSNorm(o) ), the norm over all heads at once
// The lower bounds l are those of the published model, which grow with depth: one learned tensor
// for all layers gives each its own by a cumulative softmax (kernels/gates/lower_bounds.h), the
// first none. With lower_bounds = "own" every layer has its own: none, or a learned vector that
// starts at `lower_bound`.
#include "kernels/gates/lower_bounds.h"
#include "layers/mixers/linear_mixer.h"
#include "layers/mixers/linear_tied.h"

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

class SharedBounds final : public LowerBounds {
 public:
  SharedBounds(const MixerBuild& build, const HeadOptions& h)
      : layer_(build.layer),
        finishes_(build.store.find(kSharedBounds) == nullptr),
        all_(shared_bounds(build, h)) {}

  Tensor value(Exec& exec) const override {
    if (layer_ == 0) return {};
    Tensor bound = exec.empty({all_.shape[1]});
    kernels::lower_bound_forward(exec, layer_, all_.value, bound);
    return bound;
  }
  Tensor gradient() const override { return layer_ == 0 ? Tensor{} : all_.grad.row(layer_); }
  void finish_gradients(Exec& exec) const override {
    if (finishes_) kernels::lower_bounds_backward(exec, all_.value, all_.grad);
  }

 private:
  int64_t layer_;
  bool finishes_;   // declared the tensor, so finishes its gradient
  Parameter& all_;  // [layers, kv_heads * dk]
};

class OwnBounds final : public LowerBounds {
 public:
  OwnBounds(const Build& build, const HeadOptions& h, double start)
      : bounds_(declare_head_vector(build, "lower_bound", LinearHeads(h).k, h.dk,
                                    Init::constant(start))) {}
  Tensor value(Exec&) const override { return bounds_.value; }
  Tensor gradient() const override { return bounds_.grad; }

 private:
  Parameter& bounds_;  // [kv_heads * dk]
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
  const HeadOptions& h = o.heads;
  const auto bounds = [&](const Build&) -> std::unique_ptr<LowerBounds> {
    if (o.lower_bounds != "shared") {
      if (o.lower_bound == 0) return nullptr;
      return std::make_unique<OwnBounds>(build, h, o.lower_bound);
    }
    return build.layers > 1 ? std::make_unique<SharedBounds>(build, h) : nullptr;
  };
  return std::make_unique<LinearMixer>(build,
                                       LinearSpec{.heads = LinearHeads(h),
                                                  .rows = {"q_proj", "f_proj", "i_proj"},
                                                  .map = kernels::Activation::kSilu,
                                                  .mapped = LinearSpec::Mapped::kQ,
                                                  .rule = {.core = tied_keys_core(h, bounds)},
                                                  .core_weights = Weights::kLast,
                                                  .finish = {.norm = FinishSpec::Norm::kJoint,
                                                             .name = "g_norm.weight",
                                                             .epsilon = build.norm_epsilon},
                                                  .output_gradient = build.compute});
}

LinearRule memory_rule_of_hgrn2(const RuleBuild& b) {
  return {.core = tied_keys_core(b.heads, {}), .keys_are_gates = true};
}

std::vector<FieldInfo> options_of_hgrn2() { return describe<Hgrn2Options>(); }

}  // namespace weft
