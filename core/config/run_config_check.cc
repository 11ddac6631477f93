#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/config/run_config.h"
#include "core/report/trace.h"

namespace weft {
namespace {

struct Keys {
  std::string key;
  std::string other = {};
};

// Refuses a combination: "file:line:column: key = value <what and the rule>; nearest: <...>". The
// place is that of the key or, if it has its default, that of the conflicting key.
template <class T, class... Args>
[[noreturn]] void refuse(const Config& config, const Keys& keys, const T& value,
                         fmt::format_string<Args...> why, Args&&... args) {
  const bool other = !config.places.contains(keys.key) && config.places.contains(keys.other);
  throw ConfigError("{}: {} = {} {}", config.where(other ? keys.other : keys.key), keys.key, value,
                    fmt::format(why, std::forward<Args>(args)...));
}

// The largest number up to `most` that divides `whole`.
int64_t divisor_below(int64_t whole, int64_t most) {
  while (whole % most != 0) --most;
  return most;
}

void check_pattern(const Config& config) {
  const ModelConfig& m = config.model;
  std::set<char> defined;
  for (const auto& [letter, layer] : m.letters) defined.insert(letter);
  const std::string pattern = fmt::format("\"{}\"", m.pattern);
  if (m.pattern.empty()) {
    refuse(config, {"model.pattern"}, pattern,
           "is empty; it needs one letter per layer, for example \"LLLN\"");
  }
  for (const char letter : m.pattern) {
    if (defined.contains(letter)) continue;
    if (!std::isalpha(static_cast<unsigned char>(letter))) {
      refuse(config, {"model.pattern"}, pattern, "contains '{}'; only letters name layers", letter);
    }
    const std::string tables = defined.empty()
                                   ? "no letter is defined"
                                   : fmt::format("defined letters: {}", fmt::join(defined, ", "));
    refuse(config, {"model.pattern"}, pattern,
           "uses the letter '{}', which has no table; add [model.layer.{}] with a mixer ({})",
           letter, letter, tables);
  }
}

bool uses_moe(const ModelConfig& m) {
  for (const char letter : m.pattern) {
    if (m.letters.at(letter).ffn == "moe") return true;
  }
  return false;
}

// Refuses settings that would have no effect.
void check_moe_extras(const Config& config) {
  const MoeConfig& moe = config.model.moe;
  if (moe.route_scale != 1.0 && moe.router != "sigmoid_bias") {
    refuse(config, {"model.moe.route_scale", "model.moe.router"}, moe.route_scale,
           "applies only to model.moe.router = \"sigmoid_bias\", not \"{}\"; nearest: 1.0",
           moe.router);
  }
  if (moe.shared_ffn > 0 && moe.shared > 0) {
    refuse(config, {"model.moe.shared_ffn", "model.moe.shared"}, moe.shared_ffn,
           "and model.moe.shared = {} both set the shared "
           "expert's width; nearest: model.moe.shared = 0",
           moe.shared);
  }
  if (moe.shared_gate && moe.shared == 0 && moe.shared_ffn == 0) {
    refuse(config, {"model.moe.shared_gate", "model.moe.shared"}, "true",
           "needs a shared expert; nearest: model.moe.shared = 1, or false");
  }
  if (moe.drop_policy != "position" && moe.capacity == 0) {
    refuse(config, {"model.moe.drop_policy", "model.moe.capacity"},
           fmt::format("\"{}\"", moe.drop_policy),
           "has no effect with model.moe.capacity = 0, which drops no pairs; nearest: "
           "model.moe.capacity = 1.25, or \"position\"");
  }
}

void check_moe(const Config& config) {
  const MoeConfig& moe = config.model.moe;
  if (moe.active > moe.experts) {
    refuse(config, {"model.moe.active", "model.moe.experts"}, moe.active,
           "is more than model.moe.experts = {}; a token visits an expert once; nearest: {}",
           moe.experts, moe.experts);
  }
  if (moe.experts % moe.n_group != 0) {
    refuse(config, {"model.moe.n_group", "model.moe.experts"}, moe.n_group,
           "does not divide model.moe.experts = {}; groups have equal size; nearest: {}",
           moe.experts, divisor_below(moe.experts, moe.n_group));
  }
  if (moe.topk_group > moe.n_group) {
    refuse(
        config, {"model.moe.topk_group", "model.moe.n_group"}, moe.topk_group,
        "is more than model.moe.n_group = {}; a token chooses from groups that exist; nearest: {}",
        moe.n_group, moe.n_group);
  }
  const int64_t group = moe.experts / moe.n_group;
  if (moe.active > moe.topk_group * group) {
    refuse(config, {"model.moe.active", "model.moe.topk_group"}, moe.active,
           "is more than the {} experts of model.moe.topk_group = {} "
           "groups of {}; nearest: {}, or model.moe.topk_group = {}",
           moe.topk_group * group, moe.topk_group, group, moe.topk_group * group,
           (moe.active + group - 1) / group);
  }
  check_moe_extras(config);
}

void check_train(const Config& config) {
  const TrainConfig& t = config.train;
  if (t.global_batch % t.micro_batch != 0) {
    const int64_t below = t.global_batch / t.micro_batch * t.micro_batch;
    const int64_t above = below + t.micro_batch;
    refuse(config, {"train.global_batch", "train.micro_batch"}, t.global_batch,
           "is not a multiple of train.micro_batch = {}; nearest: {}", t.micro_batch,
           below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above));
  }
  constexpr int64_t kMost =
      std::numeric_limits<int32_t>::max();  // offsets of documents in a step's tokens
  if (t.global_batch > kMost / t.sequence) {
    refuse(config, {"train.global_batch", "train.sequence"}, t.global_batch,
           "sequences of train.sequence = {} tokens are more than the {} of one step; nearest: {}",
           t.sequence, kMost,
           std::max<int64_t>(1, kMost / t.sequence / t.micro_batch) * t.micro_batch);
  }
}

void check_optimizer(const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  if (o.schedule != "constant" && o.min_lr > o.lr) {
    refuse(config, {"optimizer.min_lr", "optimizer.lr"}, o.min_lr,
           "is above optimizer.lr = {}; nearest: {}", o.lr, o.lr);
  }
}

void check_parallel(const Config& config) {
  const ParallelConfig& p = config.parallel;
  const MoeConfig& moe = config.model.moe;
  if (uses_moe(config.model) && moe.experts % p.expert != 0) {
    refuse(config, {"parallel.expert", "model.moe.experts"}, p.expert,
           "does not divide model.moe.experts = {}; every rank "
           "must hold the same number of experts; nearest: {}",
           moe.experts, divisor_below(moe.experts, p.expert));
  }
  if (p.virtual_stages > 1 && p.schedule != "interleaved") {
    refuse(config, {"parallel.virtual_stages", "parallel.schedule"}, p.virtual_stages,
           "needs parallel.schedule = \"interleaved\", not \"{}\"; nearest: 1", p.schedule);
  }
}

// parallel.stage_layers must list every stage and sum to all layers.
void check_stage_layers(const Config& config) {
  const ParallelConfig& p = config.parallel;
  if (p.stage_layers.empty()) return;
  const std::vector<int64_t> sizes = stage_sizes(p);
  const int64_t stages = int64_t{p.pipe} * p.virtual_stages, layers = config.model.layers;
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (std::ssize(sizes) == stages && sum == layers) return;
  std::vector<int64_t> even;
  for (int64_t s = 0; s < stages; ++s)
    even.push_back(layers * (s + 1) / stages - layers * s / stages);
  refuse(
      config, {"parallel.stage_layers", "model.layers"}, fmt::format("\"{}\"", p.stage_layers),
      "must list {} stages (pipe {} x virtual_stages {}), at least one layer each and {} in total "
      "(model.layers); nearest: \"{}\"",
      stages, p.pipe, p.virtual_stages, layers, fmt::join(even, ","));
}

void check_run(const Config& config) {
  const RunConfig& run = config.run;
  if (run.dir.empty()) {
    refuse(config, {"run.dir"}, "\"\"", "is empty; name a folder, for example \"runs/first\"");
  }
  if (!parse_steps(run.trace)) {
    refuse(config, {"run.trace"}, fmt::format("\"{}\"", run.trace),
           "is not a step range (steps count from 1); nearest: \"3\" or \"3-5\"");
  }
  const std::string& trace = run.routing_trace;
  const size_t colon = trace.find(':');
  const std::string verb = trace.substr(0, colon);
  const bool file = colon != std::string::npos && colon + 1 < trace.size();
  if (!trace.empty() && !(file && (verb == "write" || verb == "replay"))) {
    const std::string name = file ? trace.substr(colon + 1) : "routing.safetensors";
    refuse(config, {"run.routing_trace"}, fmt::format("\"{}\"", trace),
           "is not a verb and a file; nearest: \"write:{}\" or \"replay:{}\"", name, name);
  }
}

}  // namespace

void validate(const Config& config) {
  for (const DataSource& source : config.data.train) {
    if (source.set.empty()) continue;
    throw ConfigError(
        "{}: data.train = {{{} = ...}}: only data.valid has named sets; "
        "write a list of files",
        config.where("data.train"), source.set);
  }
  check_pattern(config);
  if (uses_moe(config.model)) check_moe(config);
  check_train(config);
  check_optimizer(config);
  check_parallel(config);
  check_stage_layers(config);
  check_run(config);
}

}  // namespace weft
