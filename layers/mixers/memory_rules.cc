// The rules that memories may have, by the names of mixers, and those of mixers that are layers of
// their own: rwkv6, rwkv7, mamba2.
#include <map>

#include "kernels/gates/rwkv7.h"
#include "kernels/gates/ssm.h"
#include "layers/basic/rwkv6_start.h"
#include "layers/basic/rwkv7_start.h"
#include "layers/mixers/linear_rule.h"
#include "layers/recurrence/diagonal.h"
#include "layers/recurrence/rank_one.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

// Weights that the memories share, cut with the heads.
Parameter& declare(const Build& build, const char* name, const Shape& shape, int64_t unit,
                   const Init& init) {
  return build.declare({.name = build.scope + name,
                        .global = shape,
                        .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = unit}},
                        .init = init,
                        .weight_decay = false,
                        .f32 = true});
}

// RWKV-6: a bonus for the token itself. Gate: log decays.
class BonusCore final : public LinearCore {
 public:
  BonusCore(const Build& build, const HeadOptions& h)
      : bonus_(declare(build, "bonus", {h.heads, h.dk}, 1,
                       Rwkv6Start(build).bonus(h.all_heads * h.dk))),
        recurrence_({h, 1.0f}) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    return recurrence_.forward(exec, inputs(in), sequence, state, saved, overlapped);
  }
  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& d, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    recurrence_.backward(exec, inputs(in), sequence, d_out, d_state,
                         {d.q, d.k, d.v, d.gates[0], flat(bonus_.grad)}, saved, overlapped);
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  static View flat(const Tensor& t) { return t.reshaped({t.elements()}); }
  DiagonalRecurrence::Inputs inputs(const CoreInputs& in) const {
    return {in.q, in.k, in.v, in.gates[0], flat(bonus_.value)};
  }
  Parameter& bonus_;  // [heads, dk]
  DiagonalRecurrence recurrence_;
};

// RWKV-7: a key is split into the one that it removes from the memory and the one that it writes
// (kernels/gates/rwkv7.h), by a rate per channel. Gates: log decays, and rates before their
// sigmoid.
class RemovalCore final : public LinearCore {
 public:
  RemovalCore(const Build& build, const HeadOptions& h, const Rwkv7Start& start)
      : heads_(h.heads),
        compute_(build.compute),
        k_k_(declare(build, "k_k", {h.heads * h.dk}, h.dk, start.ramp(0.71, -0.1, 0.0))),
        k_a_(declare(build, "k_a", {h.heads * h.dk}, h.dk, Init::constant(1.02))),
        recurrence_({h.heads, h.dk, h.dv, 1.0f}) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    const Shape shape{in.k.rows(), in.k.width()};
    Saved f{exec.empty(shape, compute_), exec.empty(shape, compute_), exec.empty(shape, compute_)};
    kernels::rwkv7_keys_forward(exec, keys(in), f.alpha, f.beta, f.key);
    Tensor out = recurrence_.forward(exec, inputs(in, f), sequence, state, saved, overlapped);
    saved.push(std::move(f));
    return out;
  }
  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& d, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    const Saved f = saved.pop<Saved>();
    const Shape& shape = f.key.shape();
    const Tensor d_key = exec.empty(shape), d_alpha = exec.empty(shape), d_beta = exec.empty(shape);
    recurrence_.backward(exec, inputs(in, f), sequence, d_out, d_state,
                         {d.q, d_key, d.v, d.gates[0], d_alpha, d_beta}, saved, overlapped);
    kernels::rwkv7_keys_backward(exec, keys(in),
                                 {d_alpha, d_beta, d_key, d.k, d.gates[1], k_k_.grad, k_a_.grad});
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor alpha, beta, key;  // [rows, heads * dk]
  };
  kernels::Rwkv7Keys keys(const CoreInputs& in) const {
    return {heads_, in.k, in.gates[1], k_k_.value, k_a_.value};
  }
  static RankOneInputs inputs(const CoreInputs& in, const Saved& f) {
    return {in.q, f.key, in.v, in.gates[0], f.alpha, f.beta};
  }
  int64_t heads_;
  DType compute_;
  Parameter &k_k_, &k_a_;  // [heads * dk]
  RankOneRecurrence recurrence_;
};

// Mamba2: the step dt of a token decays its head by e^{-dt e^{A_log}} and scales the value that it
// writes; D lets the value past the memory. Gate: dt.
class HeadStepsCore final : public LinearCore {
 public:
  HeadStepsCore(const Build& build, const HeadOptions& h)
      : a_log_(declare(build, "A_log", {h.heads}, 1, Init::log_of_uniform(1.0, 16.0))),
        skip_(declare(build, "D", {h.heads}, 1, Init::constant(1.0))),
        recurrence_({.heads = h}) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    Saved f{exec.empty({in.v.rows(), in.v.width()}, in.v.dtype), exec.empty(in.gates[0].shape)};
    kernels::head_steps_forward(exec, head_steps(in), f.v, f.log_decay);
    Tensor out = recurrence_.forward(exec, {in.q, in.k, f.v, f.log_decay}, sequence, state, saved,
                                     overlapped);
    kernels::add_head_skip(exec, head_steps(in), out);
    saved.push(std::move(f));
    return out;
  }
  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& d, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor dv = exec.empty(f.v.shape()), dg = exec.empty(f.log_decay.shape());
    recurrence_.backward(exec, {in.q, in.k, f.v, f.log_decay}, sequence, d_out, d_state,
                         {d.q, d.k, dv, dg}, saved, overlapped);
    kernels::head_steps_backward(exec, head_steps(in),
                                 {dv, dg, d_out, d.v, d.gates[0], a_log_.grad, skip_.grad});
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor v;          // dt v
    Tensor log_decay;  // [rows, heads] f32
  };
  kernels::HeadSteps head_steps(const CoreInputs& in) const {
    return {in.v, in.gates[0], a_log_.value, skip_.value};
  }
  Parameter &a_log_, &skip_;  // [heads]
  ScalarRecurrence recurrence_;
};

}  // namespace

MemoryRule memory_rule(const std::string& name) {
  static const std::map<std::string, MemoryRule> kRules = {
      {"bla", memory_rule_of_bla},
      {"deltanet", memory_rule_of_deltanet},
      {"gated_deltanet", memory_rule_of_gated_deltanet},
      {"gateloop", memory_rule_of_gateloop},
      {"gfw", memory_rule_of_gfw},
      {"gla", memory_rule_of_gla},
      {"gsa", memory_rule_of_gsa},
      {"hgrn2", memory_rule_of_hgrn2},
      {"kda", memory_rule_of_kda},
      {"lightning", memory_rule_of_lightning},
      {"mamba2", memory_rule_of_mamba2},
      {"mlstm", memory_rule_of_mlstm},
      {"rebased", memory_rule_of_rebased},
      {"retnet", memory_rule_of_retnet},
      {"rwkv6", memory_rule_of_rwkv6},
      {"rwkv7", memory_rule_of_rwkv7},
      {"titans", memory_rule_of_titans},
      {"ttt", memory_rule_of_ttt}};
  const auto found = kRules.find(name);
  WEFT_CHECK(found != kRules.end(), "memories of {}", name);
  return found->second;
}

// Decays -e^{w}, w of low rank with a tanh.
LinearRule memory_rule_of_rwkv6(const RuleBuild& b) {
  const HeadOptions& h = b.heads;
  const GateSpec decay{.stem = "w",
                       .width = h.dk,
                       .map = GateSpec::Map::kMinusExp,
                       .init = Init::uniform(-0.01, 0.01),
                       .bias = GateSpec::Bias::kOfProjection,
                       .bias_init = Rwkv6Start(b.build).decay(h.all_heads * h.dk),
                       .rank = b.gate_rank,
                       // A deviation of zero, not zeros: tests put numbers in its place.
                       .down_init = Init::normal(0.0),
                       .between = kernels::Activation::kTanh};
  return {.gates = {decay},
          .core = [h](const Build& build) { return std::make_unique<BonusCore>(build, h); }};
}

LinearRule memory_rule_of_rwkv7(const RuleBuild& b) {
  constexpr float kSlowestDecay = -0.60653066f;  // -e^{-1/2}
  const HeadOptions& h = b.heads;
  const Rwkv7Start start(b.build, h.all_heads, h.dk);
  const GateSpec rate{.stem = "a",
                      .slot = 1,
                      .width = h.dk,
                      .init = Init::orthogonal(0.1),
                      .bias = GateSpec::Bias::kOfProjection,
                      .bias_init = start.ramp(-0.19, 0.4, 0.3),
                      .rank = b.gate_rank,
                      .down_init = Init::normal(0.0)};
  GateSpec decay = rate;
  decay.stem = "w";
  decay.slot = 0;
  decay.map = GateSpec::Map::kSigmoid;
  decay.factor = kSlowestDecay;
  decay.bias_init = start.decay();
  decay.between = kernels::Activation::kTanh;
  return {.gates = {decay, rate}, .core = [h, start](const Build& build) {
            return std::make_unique<RemovalCore>(build, h, start);
          }};
}

LinearRule memory_rule_of_mamba2(const RuleBuild& b) {
  const HeadOptions& h = b.heads;
  return {.gates = {{.stem = "dt", .map = GateSpec::Map::kTimeStep}},
          .core = [h](const Build& build) { return std::make_unique<HeadStepsCore>(build, h); }};
}

}  // namespace weft
