#include "launcher/train/routing_trace.h"

#include <algorithm>

#include "core/host_access.h"

namespace weft {
namespace {

constexpr const char* kWrite = "write:";
constexpr const char* kReplay = "replay:";

std::string entry_name(int64_t step, int64_t layer) {
  return fmt::format("step.{}.layer.{}", step, layer);
}

}  // namespace

RoutingTrace::RoutingTrace(const Config& config)
    : experts_(config.model.moe.experts),
      active_(config.model.moe.active),
      step_tokens_(config.train.global_batch * config.train.sequence) {
  for (int64_t layer = 0; layer < config.model.layers; ++layer) {
    if (layer_config_of(config.model, layer).ffn == "moe") layers_.push_back(layer);
  }
  const std::string& setting = config.run.routing_trace;
  if (setting.starts_with(kWrite)) write_path_ = setting.substr(std::string(kWrite).size());
  if (!setting.starts_with(kReplay)) return;
  try {
    replayed_ = std::make_shared<SafetensorsFile>(setting.substr(std::string(kReplay).size()));
  } catch (const ConfigError& e) {
    throw ConfigError("{}: run.routing_trace: {}", config.where("run.routing_trace"), e.what());
  }
  check_file(config);
}

// Everything the run will ask for is there and fits, before the first step.
void RoutingTrace::check_file(const Config& config) const {
  const Shape want{step_tokens_, config.model.moe.active};
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("{}: run.routing_trace: {} {}", config.where("run.routing_trace"),
                      replayed_->path(), why);
  };
  for (int64_t step = 0; step < config.train.steps; ++step) {
    for (const int64_t layer : layers_) {
      const std::string name = entry_name(step, layer);
      const FileTensor* found = replayed_->find(name);
      if (!found) {
        refuse(
            fmt::format("has no {}; a trace of this model and at least this many steps is needed; "
                        "nearest: train.steps = {}",
                        name, std::max<int64_t>(1, step)));
      }
      if (found->type != FileType::kI32 || !(found->shape == want)) {
        refuse(
            fmt::format("holds {} as {} {}, but train.global_batch x train.sequence tokens with "
                        "model.moe.active experts each are I32 {}",
                        name, found->type_name, found->shape, want));
      }
      const ConstView index = replayed_->view(*found);
      const int32_t* chosen = host<int32_t>(index);
      const int32_t* wrong = std::find_if(chosen, chosen + want.elements(),
                                          [&](int32_t e) { return e < 0 || e >= experts_; });
      if (wrong != chosen + want.elements()) {
        refuse(fmt::format("sends a token of {} to expert {}, but model.moe.experts = {}", name,
                           *wrong, experts_));
      }
    }
  }
}

void RoutingTrace::before(Exec& exec, const Tokens& tokens, StepContext& context) const {
  if (!write_path_.empty()) context.made.emplace();
  if (!replayed_) return;
  for (const int64_t layer : layers_) {
    const FileTensor* found = replayed_->find(entry_name(tokens.step, layer));
    if (!found)
      throw ConfigError("{}: the routing trace ends before step {}", replayed_->path(),
                        tokens.step + 1);
    const ConstView all = replayed_->view(*found);
    const int64_t active = all.width();
    const Tensor index = exec.empty({tokens.count(), active}, DType::kI32);
    int32_t* to = host<int32_t>(index);
    for (const Run& run : tokens.runs) {
      to = std::copy_n(host<int32_t>(all) + run.begin * active, run.count * active, to);
    }
    context.given.emplace(layer, index);
  }
}

void RoutingTrace::after(const Tokens& tokens, const StepContext& context) {
  if (!context.made) return;
  // Every rank has an entry for every layer: its own, and zeros for those of other stages.
  for (const int64_t layer : layers_) {
    Recorded& entry = recorded_[entry_name(tokens.step, layer)];
    entry.shape = {step_tokens_, active_};
    entry.index.resize(static_cast<size_t>(step_tokens_ * active_));
  }
  for (const auto& [layer, index] : *context.made) {
    Recorded& entry = recorded_[entry_name(tokens.step, layer)];
    const int64_t active = index.shape()[1];
    const int32_t* from = host<int32_t>(index);
    for (const Run& run : tokens.runs) {
      std::copy_n(from, run.count * active, entry.index.data() + run.begin * active);
      from += run.count * active;
    }
  }
}

void RoutingTrace::finish(Exec& exec, Communicator& world) {
  if (write_path_.empty()) return;
  std::vector<NamedView> views;
  for (auto& [name, entry] : recorded_) {
    const Tensor index = Tensor::borrow(entry.index.data(), entry.shape, DType::kI32);
    world.all_reduce(exec, index, ReduceOp::kSum);  // zero where other ranks' tokens are
    views.push_back({name, index});
  }
  if (world.rank() != 0) return;
  write_safetensors(write_path_, {{"kind", "routing trace"}, {"experts", std::to_string(experts_)}},
                    views);
}

}  // namespace weft
