#include <cmath>

#include "core/host_access.h"
#include "kernels/attention/attention.h"
#include "launcher/verify/golden.h"
#include "launcher/verify/golden_cores.h"
#include "launcher/verify/golden_delta.h"
#include "launcher/verify/golden_descent.h"
#include "launcher/verify/golden_lasp2.h"
#include "launcher/verify/golden_memories.h"
#include "launcher/verify/golden_rank_one.h"
#include "launcher/verify/golden_ssm.h"
#include "layers/basic/mlp.h"
#include "layers/block.h"
#include "layers/mixers/registry.h"
#include "layers/moe/moe.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

// Maps golden names of options and mixers to ours; all other names are equal.
std::string our_name(const std::string& golden) {
  static const std::map<std::string, std::string> kNames = {{"H", "heads"},
                                                            {"Hkv", "kv_heads"},
                                                            {"N", "state"},
                                                            {"shared", "shared_memory"},
                                                            {"conv", "short_conv"},
                                                            {"attention", "softmax"},
                                                            {"gate_norm", "gate_divisor"},
                                                            {"gn_eps", "norm_epsilon"}};
  const auto found = kNames.find(golden);
  return found == kNames.end() ? golden : found->second;
}

OptionTable options_of(const GoldenCase& golden, const nlohmann::json& config,
                       const std::string& scope) {
  OptionTable table;
  for (const auto& [key, value] : config.items()) {
    const std::string name = our_name(key);
    if (golden.mixer == "rwkv7" && name != "heads") continue;  // widths follow from the hidden one
    // Files of Liger have tau for every form; we accept it only where it has an effect.
    const std::string form = config.value("form", "");
    if (name == "tau" && (form == "hgrn2" || form == "rwkv6" || form == "mamba2")) continue;
    if (value.is_boolean())
      table.set(name, value.get<bool>());
    else if (value.is_number_integer())
      table.set(name, value.get<int64_t>());
    else if (value.is_number())
      table.set(name, value.get<double>());
    else
      table.set(name, value.get<std::string>());
  }
  // Golden files imply options by the presence of weights; configs name them.
  const auto flag = [&](const char* weight, const char* option) {
    if (golden.has("w." + scope + weight)) table.set(option, true);
  };
  flag("q_norm.weight", "qk_norm");
  flag("q_proj.bias", "bias");
  const auto rank = [&](const char* weight, const char* option, int64_t parts) {
    const std::string key = "w." + scope + weight;
    if (golden.has(key)) table.set(option, golden.shape(key)[0] / parts);
  };
  rank("gk_proj.0.weight", "gate_rank", 1);
  rank("x_proj.0.weight", "mix_rank", 5);
  rank("w_lora.0.weight", "decay_rank", 1);
  rank("w1", "decay_rank", 1);
  rank("a1", "rate_rank", 1);
  rank("v1", "value_rank", 1);
  rank("g1", "gate_rank", 1);
  if (golden.has("w." + scope + "lower_bound")) table.set("lower_bound", 0.5);
  flag("out_norm.weight", "output_norm");
  flag("ogate_proj.weight", "output_gate");
  flag("k_shift.weight", "kv_shift");
  if (golden.mixer == "ttt") flag("ln.weight", "inner_norm");
  if (golden.has("w." + scope + "out_proj.weight")) {
    table.set("inner", golden.shape("w." + scope + "out_proj.weight")[1]);
  }
  return table;
}

Build build_of(ParameterStore& store, const GoldenCase& golden, int64_t hidden) {
  return {.store = store,
          .scope = "",
          .hidden = hidden,
          .layer = 0,
          .layers = 1,
          .compute = golden.precision,
          .expert_mode = golden.expert_mode};
}

void prepare(Runtime& runtime, const GoldenCase& golden, ParameterStore& store) {
  store.allocate(runtime.pool(), golden.precision, ParameterStore::Gradients::kAllocate);
  load_weights(runtime.exec(), golden, store, "");
}

void run_scalar_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Shape &q = golden.shape("in.q"), &v = golden.shape("in.v"), &k = golden.shape("in.k");
  const ScalarRecurrence recurrence(
      {.heads = {.heads = q[2], .kv_heads = k[2], .dk = q[3], .dv = v[3]},
       .scale = 1.0f / std::sqrt(static_cast<float>(q[3])),
       .normalize = golden.config.value("normalize", false)});
  const Tensor tq = golden.rows(exec, "in.q"), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v");
  Tensor decay, d_decay;
  if (golden.has("in.g")) {
    decay = golden.read(exec, "in.g", DType::kF32).reshaped({tq.shape()[0], q[2]});
    d_decay = exec.empty(decay.shape());
  }
  const ScalarRecurrence::Inputs in{tq, tk, tv, decay.defined() ? ConstView(decay) : ConstView{}};
  const Sequence sequence = golden.sequence(exec, "in.q");
  SavedStack saved;
  State state = golden.states(exec, "state0.");
  compare.check(exec, "out.y", recurrence.forward(exec, in, sequence, &state, saved));
  compare.check_states(exec, "out.state.", state);

  State d_state = golden.states(exec, "cot.state.");
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape());
  recurrence.backward(exec, in, sequence, golden.rows(exec, "cot.y"), &d_state,
                      {dq, dk, dv, d_decay.defined() ? d_decay.view() : View{}}, saved);
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  if (d_decay.defined()) compare.check(exec, "grad.in.g", d_decay);
  compare.check_states(exec, "grad.state0.", d_state);
}

void run_attention_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Shape &q = golden.shape("in.q"), &v = golden.shape("in.v"), &k = golden.shape("in.k");
  const Tensor tq = golden.rows(exec, "in.q"), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v"), dy = golden.rows(exec, "cot.y");
  const Sequence sequence = golden.sequence(exec, "in.q");
  const kernels::Attention in{.q = tq,
                              .k = tk,
                              .v = tv,
                              .documents = sequence.documents,
                              .heads = q[2],
                              .kv_heads = k[2],
                              .key = q[3],
                              .value = v[3],
                              .scale = 1.0f / std::sqrt(static_cast<float>(q[3])),
                              .window = golden.config.value("window", int64_t{0})};
  const Tensor out = exec.empty({sequence.tokens(), q[2] * v[3]}, golden.precision);
  const Tensor lse = exec.empty({sequence.tokens(), q[2]});
  kernels::attention_forward(exec, in, out, lse);
  compare.check(exec, "out.y", out);
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape());
  kernels::attention_backward(exec, in, out, lse, dy, {dq, dk, dv});
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
}

void run_layer(Runtime& runtime, const GoldenCase& golden, Comparison& compare) {
  Exec& exec = runtime.exec();
  ParameterStore store;
  const OptionTable options = options_of(golden, golden.config, "");
  Build build = build_of(store, golden, golden.shape("in.x")[2]);
  StepContext step{.aux_scale = 0.0f};  // the file's gradients are those of y alone
  if (golden.has("in.v_first")) {       // the first layer's value: this is a later layer
    step.first_value = golden.rows(exec, "in.v_first");
    build.layer = 1, build.layers = 2;
  }
  const auto mixer = make_mixer(our_name(golden.mixer), MixerBuild{build, options});
  prepare(runtime, golden, store);

  const Sequence sequence = golden.sequence(exec, "in.x");
  SavedStack saved;
  MixerState state, d_state;
  give_memories(exec, golden, build, step);
  state.part(kRecurrence) = golden.states(exec, "state0.");
  compare.check(exec, "out.y",
                mixer->forward(exec, golden.rows(exec, "in.x"), {sequence, &state, &step}, saved));
  compare.check_states(exec, "out.state.", state.part(kRecurrence));
  check_memories(runtime, golden, step, compare);
  d_state.part(kRecurrence) = golden.states(exec, "cot.state.");
  const Tensor dy = golden.read(exec, "cot.y", DType::kF32);
  const Tensor dx = mixer->backward(exec, dy.reshaped({sequence.tokens(), build.hidden}),
                                    {sequence, &d_state, &step}, saved);
  compare.check(exec, "grad.in.x", dx);
  if (golden.has("in.v_first")) compare.check(exec, "grad.in.v_first", step.d_first_value);
  compare.check_states(exec, "grad.state0.", d_state.part(kRecurrence));
  compare.check_weights(exec, store, "");
}

kernels::Router router_rule(const nlohmann::json& config) {
  const std::string router = config.value("router", "softmax_topk");
  const bool sigmoid = router == "sigmoid_bias";
  return {.mode = sigmoid                    ? kernels::RouterMode::kSigmoid
                  : router == "topk_softmax" ? kernels::RouterMode::kTopkSoftmax
                                             : kernels::RouterMode::kSoftmax,
          .renormalize = config.value("renormalize", sigmoid),
          .active = config.at("top_k").get<int64_t>(),
          .scale = config.value("route_scale", 1.0f)};
}

MoeOptions moe_options(const GoldenCase& golden, const nlohmann::json& config,
                       const std::string& scope) {
  const Shape& gate_up = golden.shape("w." + scope + "experts.w_gate_up");
  const std::string shared = "w." + scope + "shared.w_down";
  const bool gate = golden.has("w." + scope + "shared_gate.weight");
  return {.router = {.rule = router_rule(config),
                     .experts = gate_up[0],
                     .aux_loss = golden.config.value("aux_coeff", 0.0),
                     .z_loss = golden.config.value("z_coeff", 0.0),
                     .capacity = config.value("capacity_factor", 0.0),
                     .keep = config.value("drop_policy", "position") == "probs"
                                 ? kernels::Keep::kHeaviest
                                 : kernels::Keep::kFirst},
          .width = gate_up[1] / 2,
          .shared_width = golden.has(shared) ? golden.shape(shared)[1] : 0,
          .shared_gate = gate ? SharedGate::kSigmoid : SharedGate::kNone};
}

// The effective weights: 0 for dropped pairs.
Tensor used_weights(Exec& exec, const Routing& routing) {
  const int64_t rows = routing.order.token.elements();
  const Tensor sorted = exec.empty({rows}), used = exec.empty(routing.weight.shape());
  kernels::permute_pairs(exec, routing.order.row, routing.weight, sorted);
  kernels::unpermute_pairs(exec, routing.order.row, sorted, used);
  return used;
}

// In low precision the routing is taken from the file: margins between experts are smaller than the
// rounding.
std::optional<Routing> routing_of(Exec& exec, const GoldenCase& golden) {
  if (golden.precision == DType::kF32 || !golden.has("out.index")) return std::nullopt;
  Routing routing;
  routing.index = golden.read(exec, "out.index", DType::kI32);
  routing.weight = golden.read(exec, "out.weights", DType::kF32);
  return routing;
}

void check_routing(Exec& exec, const StepContext& context, Comparison& compare) {
  const MoeReport& report = context.reports.at(0);
  const auto scalar = [&](double value) {
    const Tensor t = exec.empty({1});
    host<float>(t)[0] = static_cast<float>(value);
    return t;
  };
  compare.check(exec, "out.aux", scalar(report.aux));
  compare.check(exec, "out.z", scalar(report.z));
  compare.check(exec, "out.index", context.decided->index);
}

void run_moe(Runtime& runtime, const GoldenCase& golden, Comparison& compare) {
  Exec& exec = runtime.exec();
  ParameterStore store;
  const Tensor x = golden.read(exec, "in.x", golden.precision);
  const MoeOptions options = moe_options(golden, golden.config, "");
  Moe moe(build_of(store, golden, x.shape()[1]), options);
  prepare(runtime, golden, store);

  SavedStack saved;
  StepContext context;
  context.fixed_choice = routing_of(exec, golden);
  compare.check(exec, "out.y", moe.forward(exec, x, context, saved));
  const MoeReport& report = context.reports.at(0);
  const Tensor counts = exec.empty({options.router.experts}, DType::kI32);
  for (size_t e = 0; e < report.counts.size(); ++e) {
    host<int32_t>(counts)[e] = static_cast<int32_t>(report.counts[e]);
  }
  compare.check(exec, "out.counts", counts);
  check_routing(exec, context, compare);
  compare.check(exec, "out.weights", used_weights(exec, *context.decided));
  compare.check(exec, "grad.in.x",
                moe.backward(exec, golden.read(exec, "cot.y", DType::kF32), context, saved));
  compare.check_weights(exec, store, "");
  moe.finish_step(exec, report);
  if (const Parameter* bias = store.find("router.bias")) {
    compare.check(exec, "out.bias_updated", bias->master);
  }
}

void run_block(Runtime& runtime, const GoldenCase& golden, Comparison& compare) {
  Exec& exec = runtime.exec();
  ParameterStore store;
  const Shape& shape = golden.shape("in.x");
  const Build build = build_of(store, golden, shape[2]);
  const OptionTable options = options_of(golden, golden.config.at("mixer"), "mixer.");
  auto mixer = make_mixer(our_name(golden.mixer), MixerBuild{build.in("mixer"), options});
  std::unique_ptr<FeedForward> feed_forward;
  const nlohmann::json& moe = golden.config.at("moe");
  if (moe.is_null()) {
    feed_forward = std::make_unique<Mlp>(build.in("mlp"), golden.shape("w.mlp.w_down")[1]);
  } else {
    feed_forward = std::make_unique<Moe>(build.in("moe"), moe_options(golden, moe, "moe."));
  }
  const Block block(std::move(mixer), RmsNorm(build, "norm1"), std::move(feed_forward),
                    std::make_unique<RmsNorm>(build, "norm2"), Recompute::kNone);
  prepare(runtime, golden, store);

  const Sequence sequence = golden.sequence(exec, "in.x");
  const Shape rows{sequence.tokens(), shape[2]};
  SavedStack saved;
  StepContext context;
  if (golden.precision != DType::kF32 && golden.has("out.index")) {
    context.given[build.layer] = golden.read(exec, "out.index", DType::kI32);
  }
  const Tensor x = golden.read(exec, "in.x", DType::kF32).reshaped(rows);
  MixerState state;
  compare.check(exec, "out.y", block.forward(exec, x, sequence, context, saved, &state));
  compare.check_states(exec, "out.state.", state.part(kRecurrence));
  if (!moe.is_null()) check_routing(exec, context, compare);
  const Tensor dy = golden.read(exec, "cot.y", DType::kF32).reshaped(rows);
  compare.check(exec, "grad.in.x", block.backward(exec, dy, sequence, context, saved));
  compare.check_weights(exec, store, "");
}

void run_case(Runtime& runtime, const GoldenCase& golden, Comparison& compare) {
  Exec& exec = runtime.exec();
  const bool scalar =
      golden.mixer == "linear" || golden.mixer == "linear_norm" || golden.mixer == "scalar_decay";
  if (golden.kind == "core" && scalar)
    run_scalar_core(exec, golden, compare);
  else if (run_golden_core(exec, golden, compare) || run_ssm_core(exec, golden, compare))
    return;
  else if (golden.kind == "core" && golden.mixer == "attention")
    run_attention_core(exec, golden, compare);
  else if (golden.kind == "core" && golden.mixer == "fox")
    run_fox_core(exec, golden, compare);
  else if (is_delta_core(golden))
    run_delta_core(exec, golden, compare);
  else if (is_descent_core(golden))
    run_descent_core(exec, golden, compare);
  else if (is_rank_one_core(golden))
    run_rank_one_core(exec, golden, compare);
  else if (is_lasp2(golden))
    run_lasp2(exec, golden, compare);
  else if (golden.kind == "layer")
    run_layer(runtime, golden, compare);
  else if (golden.kind == "moe")
    run_moe(runtime, golden, compare);
  else if (golden.kind == "block")
    run_block(runtime, golden, compare);
  else
    throw ConfigError("{} {} is not supported", golden.kind, golden.mixer);
}

}  // namespace

Comparison run_golden(Runtime& runtime, const GoldenCase& golden, Tolerance tolerance) {
  Comparison compare(golden, tolerance);
  const bool mixer = golden.kind == "layer" || golden.kind == "core" || is_lasp2(golden);
  if (mixer && golden.precision == DType::kBF16 && !golden.rounded_results()) {
    for (const auto& [inputs, weights] : {std::pair{true, true}, {true, false}, {false, true}}) {
      GoldenCase rounded(golden.file().path(), DType::kF32);
      rounded.rounded_inputs = inputs, rounded.rounded_weights = weights;
      Comparison moved(rounded, tolerance);
      run_case(runtime, rounded, moved);
      compare.allow_for(moved);
    }
  }
  run_case(runtime, golden, compare);
  return compare;
}

}  // namespace weft
