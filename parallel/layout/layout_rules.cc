#include "parallel/layout/layout_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

struct Broken {
  std::string key;  // of the config, to say where it was set
  std::string why;
};

// "8 or 12": the multiples of `step` on both sides of `value`.
std::string multiples_beside(int64_t value, int64_t step) {
  const int64_t below = value / step * step, above = below + step;
  return below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
}

// Each degree fits into 20 bits, so no product of three overflows; one that divides the world is an
// int again.
int64_t known_ranks(const ParallelConfig& p) { return int64_t{p.tensor} * p.sequence * p.pipe; }

std::string product(const ParallelConfig& p, int world) {
  const int64_t known = known_ranks(p);
  if (world % known != 0) {
    return fmt::format("tensor {} x sequence {} x pipe {} = {}", p.tensor, p.sequence, p.pipe,
                       known);
  }
  return fmt::format("tensor {} x sequence {} x data {} x pipe {} = {} ranks", p.tensor, p.sequence,
                     world / known, p.pipe, world);
}

// Degrees by themselves: do they factor the ranks?
std::optional<Broken> broken_product(const ParallelConfig& p, int world) {
  const int64_t known = known_ranks(p);
  if (world % known != 0) {
    return Broken{p.pipe > 1       ? "parallel.pipe"
                  : p.sequence > 1 ? "parallel.sequence"
                                   : "parallel.tensor",
                  fmt::format("{} does not divide the {} ranks that were started (data = ranks / "
                              "(tensor x sequence x pipe)); with these degrees: -n {}",
                              known, world, multiples_beside(world, known))};
  }
  const int64_t stage = world / p.pipe, experts = int64_t{p.expert} * p.expert_tensor;
  if (stage % experts != 0) {
    return Broken{p.expert > 1 ? "parallel.expert" : "parallel.expert_tensor",
                  fmt::format("expert {} x expert_tensor {} = {} does not divide the {} tensor x "
                              "sequence x data ranks of a stage, which experts are spread over",
                              p.expert, p.expert_tensor, experts, stage)};
  }
  return std::nullopt;
}

std::optional<Broken> broken_heads(const Config& config, const ParallelConfig& p) {
  for (const auto& [letter, layer] : config.model.letters) {
    const ConfigNode* heads = layer.options.node().find("heads");
    if (heads == nullptr || !std::holds_alternative<int64_t>(heads->value)) continue;
    const int64_t count = std::get<int64_t>(heads->value);
    if (count % p.tensor == 0) continue;
    return Broken{"parallel.tensor",
                  fmt::format("model.layer.{}.heads = {} cannot be cut over {} tensor ranks: each "
                              "holds as many whole heads",
                              letter, count, p.tensor)};
  }
  return std::nullopt;
}

std::optional<Broken> broken_experts(const Config& config, const ParallelConfig& p) {
  const ModelConfig& m = config.model;
  const bool moe = std::any_of(m.pattern.begin(), m.pattern.end(),
                               [&](char letter) { return m.letters.at(letter).ffn == "moe"; });
  if (!moe) return std::nullopt;
  if (m.moe.experts % p.expert != 0) {
    return Broken{
        "parallel.expert",
        fmt::format("model.moe.experts = {} cannot be cut over {} expert ranks: each holds "
                    "as many experts",
                    m.moe.experts, p.expert)};
  }
  if (m.moe.ffn % p.expert_tensor != 0) {
    return Broken{"parallel.expert_tensor",
                  fmt::format("model.moe.ffn = {} cannot be cut over {} expert_tensor ranks",
                              m.moe.ffn, p.expert_tensor)};
  }
  return std::nullopt;
}

// Model and batch: does every rank get something, and as much as the others?
std::optional<Broken> broken_shares(const Config& config, const ParallelConfig& p, int world) {
  const int64_t stages = int64_t{p.pipe} * p.virtual_stages;
  if (stages > config.model.layers) {
    return Broken{"parallel.pipe",
                  fmt::format("model.layers = {} are fewer than {} stages (pipe x virtual_stages): "
                              "each holds one layer at least",
                              config.model.layers, stages)};
  }
  if (!p.stage_layers.empty() && std::ssize(stage_sizes(p)) != stages) {
    return Broken{"parallel.pipe", fmt::format("parallel.stage_layers = \"{}\" are not {} stages",
                                               p.stage_layers, stages)};
  }
  if (p.sequence > config.train.sequence) {
    return Broken{"parallel.sequence",
                  fmt::format("train.sequence = {} are fewer tokens than {} sequence ranks",
                              config.train.sequence, p.sequence)};
  }
  if (auto broken = broken_heads(config, p)) return broken;
  if (auto broken = broken_experts(config, p)) return broken;
  const int64_t data = world / known_ranks(p), share = data * config.train.micro_batch;
  if (config.train.global_batch % share != 0) {
    return Broken{
        "train.global_batch",
        fmt::format("train.global_batch = {} is not a multiple of data {} x train.micro_batch {} = "
                    "{}: every data rank computes as many "
                    "micro-batches; nearest: train.global_batch = {}",
                    config.train.global_batch, data, config.train.micro_batch, share,
                    multiples_beside(config.train.global_batch, share))};
  }
  const int64_t micro_batches = config.train.global_batch / share;
  if (p.virtual_stages > 1 && micro_batches % p.pipe != 0) {
    return Broken{
        "parallel.virtual_stages",
        fmt::format(
            "parallel.schedule = \"interleaved\" runs micro-batches in groups of pipe {}, and a "
            "step has {} per data rank; nearest: train.global_batch = {}, or virtual_stages = 1",
            p.pipe, micro_batches, multiples_beside(config.train.global_batch, share * p.pipe))};
  }
  return std::nullopt;
}

// All rules of one config and world, for the layout that was asked for and for those to be offered.
class Rules {
 public:
  Rules(const Config& config, int world, const PlaceRule& model)
      : config_(config), world_(world), model_(model) {}

  std::optional<Broken> broken(const ParallelConfig& p) {
    if (auto broken = broken_by_numbers(p)) return broken;
    const std::string& why = refused_by_model(p);
    if (why.empty()) return std::nullopt;
    return Broken{p.tensor > 1 ? "parallel.tensor" : "parallel.expert", why};
  }
  // All but the model's: enough to leave most of many layouts out.
  std::optional<Broken> broken_by_numbers(const ParallelConfig& p) const {
    if (auto broken = broken_product(p, world_)) return broken;
    return broken_shares(config_, p, world_);
  }

 private:
  // Asked once for all layouts that cut the layers alike.
  const std::string& refused_by_model(const ParallelConfig& p) {
    const auto [at, added] = asked_.try_emplace({p.tensor, p.expert, p.expert_tensor});
    if (added && model_) at->second = model_(coordinates_of(p, 0, world_));
    return at->second;
  }

  const Config& config_;
  int world_;
  const PlaceRule& model_;
  std::map<std::array<int, 3>, std::string> asked_;
};

std::vector<int> divisors(int n) {
  std::vector<int> out;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) out.push_back(d);
  }
  return out;
}

// How far two layouts are from each other: doublings of a degree.
double distance(const ParallelConfig& a, const ParallelConfig& b) {
  const auto apart = [](int x, int y) { return std::abs(std::log2(static_cast<double>(x) / y)); };
  return apart(a.tensor, b.tensor) + apart(a.sequence, b.sequence) + apart(a.pipe, b.pipe) +
         apart(a.expert, b.expert) + apart(a.expert_tensor, b.expert_tensor);
}

std::string short_text(const ParallelConfig& p, int world) {
  std::string text = fmt::format("tensor {}, sequence {}, pipe {}", p.tensor, p.sequence, p.pipe);
  if (p.expert > 1) text += fmt::format(", expert {}", p.expert);
  if (p.expert_tensor > 1) text += fmt::format(", expert_tensor {}", p.expert_tensor);
  return fmt::format("{} (data {})", text, world / known_ranks(p));
}

// The three layouts of `world` ranks nearest to `asked` that keep all rules.
std::string nearest_layouts(Rules& rules, const ParallelConfig& asked, int world) {
  std::vector<std::pair<double, ParallelConfig>> found;
  const std::vector<int> all = divisors(world);
  // Who did not ask for an axis is not offered it.
  const auto offered = [&](int degree) { return degree > 1 ? all : std::vector{1}; };
  const auto consider = [&](const ParallelConfig& dense) {
    for (const int expert : offered(asked.expert)) {
      for (const int width : offered(asked.expert_tensor)) {
        ParallelConfig p = dense;
        p.expert = expert, p.expert_tensor = width;
        if (!rules.broken_by_numbers(p)) found.emplace_back(distance(p, asked), p);
      }
    }
  };
  for (const int tensor : offered(asked.tensor)) {
    for (const int sequence : offered(asked.sequence)) {
      for (const int pipe : offered(asked.pipe)) {
        if (world % (int64_t{tensor} * sequence * pipe) != 0) continue;
        ParallelConfig p = asked;
        p.tensor = tensor, p.sequence = sequence, p.pipe = pipe;
        consider(p);
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> texts;
  for (const auto& [far, p] : found) {
    if (texts.size() < 3 && !rules.broken(p)) texts.push_back(short_text(p, world));
  }
  if (texts.empty()) return "";
  return fmt::format("; layouts of {} ranks that work: {}", world, fmt::join(texts, "; "));
}

}  // namespace

void check_layout(const Config& config, int world, const PlaceRule& model) {
  WEFT_CHECK(world > 0, "a world of {} ranks", world);
  Rules rules(config, world, model);
  const std::optional<Broken> broken = rules.broken(config.parallel);
  if (!broken) return;
  throw ConfigError("{}: parallel: {}: {}{}", config.where(broken->key),
                    product(config.parallel, world), broken->why,
                    nearest_layouts(rules, config.parallel, world));
}

}  // namespace weft
