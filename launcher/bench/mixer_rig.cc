#include "launcher/bench/mixer_rig.h"

#include <cmath>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "launcher/app/measure.h"
#include "layers/mixers/registry.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

OptionTable options_of(const MixerChoice& c) {
  std::string text;
  const auto number = [&](const char* key, int64_t value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  const auto takes = [&](const char* key) { return mixer_takes(c.mixer, key); };
  if (takes("heads")) number("heads", c.heads);
  if (takes("dk")) {
    number("dk", c.dk);
    number("dv", c.dv);
  } else if (takes("inner")) {  // channels; with heads also a separate state width
    number("inner", c.heads * c.dv);
    if (takes("heads")) number("state", c.dk);
  }
  for (const std::string& item : c.set) text += item + "\n";
  return OptionTable::parse(text);
}

// Forget rates are spread geometrically over the heads: from everything after a token or two to a
// hundredth per token. Trained forgetting attention has such a mix of heads, most of them local.
void train_like_gates(ParameterStore& store) {
  Parameter* bias = store.find("fgate_proj.bias");
  if (bias == nullptr) return;
  const int64_t heads = bias->shape.elements();
  for (int64_t h = 0; h < heads; ++h) {
    const double rate =
        std::pow(0.01, heads > 1 ? static_cast<double>(h) / static_cast<double>(heads - 1) : 0.5);
    host<float>(bias->master)[h] = static_cast<float>(-std::log(std::expm1(rate)));
  }
}

}  // namespace

bool mixer_takes(const std::string& mixer, const std::string& option) {
  for (const MixerInfo& info : mixer_list()) {
    if (info.name != mixer) continue;
    for (const FieldInfo& field : info.options) {
      if (field.name == option) return true;
    }
  }
  return false;
}

int64_t default_key_width(const std::string& mixer) { return mixer == "rebased" ? 16 : 128; }

double MixerRig::Sample::pruned_share(nlohmann::json& out) const {
  int64_t kept = 0, causal = 0;
  nlohmann::json heads = nlohmann::json::array();
  for (const PruningReport& report : pruning) {
    for (const auto& head : report.heads) {
      kept += head.kept, causal += head.causal;
      heads.push_back(1.0 - static_cast<double>(head.kept) / static_cast<double>(head.causal));
    }
  }
  if (causal == 0) return 0;
  const double share = 1.0 - static_cast<double>(kept) / static_cast<double>(causal);
  out["pruned"] = share, out["pruned_by_head"] = heads;
  return share;
}

MixerRig::MixerRig(Runtime& runtime, MixerChoice choice)
    : runtime_(runtime), choice_(std::move(choice)) {
  if (choice_.dk == 0) choice_.dk = default_key_width(choice_.mixer);
  const bool has_heads = mixer_takes(choice_.mixer, "heads");
  if (has_heads && !mixer_takes(choice_.mixer, "dk") && !mixer_takes(choice_.mixer, "inner")) {
    if (choice_.dv != choice_.dk) {
      throw ConfigError("--dk {} --dv {}: mixer {} has one width for both; set --dv {}", choice_.dk,
                        choice_.dv, choice_.mixer, choice_.dk);
    }
    choice_.hidden = choice_.heads * choice_.dk;
  }
  const OptionTable options = options_of(choice_);
  const Build build{
      .store = store_, .scope = "", .hidden = choice_.hidden, .compute = choice_.dtype};
  mixer_ = make_mixer(choice_.mixer, MixerBuild{build, options});
  store_.allocate(runtime_.pool(), choice_.dtype, ParameterStore::Gradients::kAllocate);
  initialize(runtime_.exec(), store_, 1);
  train_like_gates(store_);
  publish(runtime_.exec(), store_);
}

nlohmann::json MixerRig::widths() const {
  if (!mixer_takes(choice_.mixer, "heads")) {
    return {{"channels", choice_.heads * choice_.dv}, {"hidden", choice_.hidden}};
  }
  return {
      {"heads", choice_.heads}, {"dk", choice_.dk}, {"dv", choice_.dv}, {"hidden", choice_.hidden}};
}

Tensor MixerRig::normal(std::string_view name, Shape shape, DType dtype) const {
  const RandomStream stream(1, name);
  Tensor t = runtime_.exec().empty(shape, dtype);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const auto x = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
    if (dtype == DType::kF32)
      host<float>(t)[i] = x;
    else
      host<bf16>(t)[i] = to_bf16(x);
  }
  return t;
}

MixerInputs MixerRig::inputs(int64_t length, int64_t documents) const {
  std::vector<int32_t> offsets;
  for (int64_t d = 0; d <= documents; ++d) offsets.push_back(static_cast<int32_t>(d * length));
  const int64_t tokens = documents * length;
  return {length, make_sequence(offsets), normal("x", {tokens, choice_.hidden}, choice_.dtype),
          normal("dy", {tokens, choice_.hidden}, DType::kF32)};
}

MixerRig::Sample MixerRig::run(const MixerInputs& inputs, ChunkStates states) const {
  Exec& exec = runtime_.exec();
  CoreProfile profile;
  Sequence sequence = inputs.sequence;
  sequence.profile = &profile;
  sequence.chunk_states = states;
  StepContext step;
  SavedStack saved;
  Sample sample;
  const int64_t live = runtime_.ledger().total().live;
  sample.layer = seconds_of([&] {
    { const Tensor y = mixer_->forward(exec, inputs.x, {sequence, nullptr, &step}, saved); }
    sample.bytes_saved = runtime_.ledger().total().live - live;
    mixer_->backward(exec, inputs.dy, {sequence, nullptr, &step}, saved);
  });
  sample.forward = profile.forward;
  sample.backward = profile.backward;
  sample.flops = profile.flops;
  sample.programs = fmt::format("{}", fmt::join(profile.programs, ", "));
  sample.pruning = step.pruning;
  return sample;
}

MixerRig::Decoded MixerRig::decode(int64_t length, int64_t tokens) const {
  Exec& exec = runtime_.exec();
  MixerState state;
  SavedStack saved;
  StepContext step;
  const auto count = static_cast<int32_t>(length);
  const Sequence prompt = make_sequence({0, count});
  mixer_->forward(exec, normal("x", {length, choice_.hidden}, choice_.dtype),
                  {prompt, &state, &step}, saved);
  saved.clear();
  const Tensor x = normal("next", {1, choice_.hidden}, choice_.dtype);
  Decoded decoded;
  for (int64_t i = 0; i < tokens; ++i) {
    const Sequence next = make_sequence({0, 1}, {count + static_cast<int32_t>(i)});
    decoded.seconds.push_back(seconds_of([&] {
      mixer_->forward(exec, x, {next, &state, &step}, saved);
    }));
    saved.clear();
  }
  for (const auto& [name, part] : state.parts()) {
    for (const Tensor& t : part) decoded.state_bytes += t.bytes();
  }
  return decoded;
}

}  // namespace weft
