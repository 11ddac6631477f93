#include "launcher/train/resume_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/config/config_tree.h"
#include "core/data/indexed_dataset.h"

namespace weft {
namespace {

using Contents = std::map<std::string, std::string>;

// Keys of [model] that change how a model is trained or computed, not what it is.
const std::set<std::string> kTrainingKeys = {"model.moe.compute",     "model.moe.aux_loss",
                                             "model.moe.z_loss",      "model.moe.capacity",
                                             "model.moe.drop_policy", "model.moe.bias_rate"};
// Keys that say where things are; what is there is compared.
const std::set<std::string> kPlaceKeys = {"data.train", "data.valid", "data.tokenizer",
                                          "run.dir",    "run.init",   "run.resume"};
// Keys that decide which text sample i of a run is.
const std::set<std::string> kSampleKeys = {"train.seed", "train.sequence", "data.split"};

void flatten(const ConfigNode& node, const std::string& name, Contents& out) {
  const auto* table = std::get_if<ConfigNode::Table>(&node.value);
  if (table == nullptr) {
    out[name] = print_toml_value(node);
    return;
  }
  for (const ConfigEntry& e : *table) {
    flatten(e.node, name.empty() ? e.key : name + "." + e.key, out);
  }
}

// "table.key" -> value, of all keys.
Contents keys_of(Config config) {
  Contents keys;
  flatten(write_fields([&](FieldVisitor& f) { fields(f, config); }), "", keys);
  return keys;
}

// Old and new value of a key that differs.
struct Change {
  std::string key, before, now;
  std::string text() const { return fmt::format("{} {} -> {}", key, before, now); }
};
std::vector<Change> changes(const Contents& before, const Contents& now) {
  std::vector<Change> out;
  const auto value = [](const Contents& all, const std::string& key) {
    const auto found = all.find(key);
    return found == all.end() ? "nothing" : found->second;
  };
  Contents all = now;
  all.insert(before.begin(), before.end());
  for (const auto& [key, unused] : all) {
    if (value(before, key) != value(now, key))
      out.push_back({key, value(before, key), value(now, key)});
  }
  return out;
}

std::string sentence(const std::vector<Change>& all) {
  std::vector<std::string> texts;
  for (const Change& change : all) texts.push_back(change.text());
  return fmt::format("changed  {}", fmt::join(texts, ", "));
}

// Compares the datasets of one role ("train", "valid"), in their order.
class RoleCheck {
 public:
  RoleCheck(std::string role, const Config& config, const Manifest& now, const Config& before,
            const FoundCheckpoint& checkpoint)
      : role_(std::move(role)),
        config_(config),
        checkpoint_(checkpoint.path),
        now_(contents(now.data)),
        then_(contents(checkpoint.manifest.data)),
        now_sources_(sources(config)),
        then_sources_(sources(before)) {}

  bool known() const { return !then_.empty(); }
  bool same() const { return now_ == then_; }
  std::vector<double> weights_now() const { return weights(now_sources_); }
  std::vector<double> weights_then() const { return weights(then_sources_); }
  std::string paths_now() const { return paths(now_sources_); }
  std::string paths_then() const { return paths(then_sources_); }

  // Another content under the name of before: a file was damaged or built anew.
  void refuse_files_that_changed() const {
    for (size_t i = 0; i < std::min(now_.size(), then_.size()); ++i) {
      if (now_[i] == then_[i] || now_sources_[i].path != then_sources_[i].path) continue;
      throw ConfigError(
          "{}{}: has changed since {} was written; {}", dataset_prefix(now_sources_[i].path),
          now_[i].first != then_[i].first ? ".bin" : ".idx", checkpoint_, way_out("Restore it"));
    }
  }

  void refuse_other_content() const {
    refuse_files_that_changed();
    const bool reordered =
        std::is_permutation(now_.begin(), now_.end(), then_.begin(), then_.end());
    throw ConfigError("{}: data.{} = {}, but {} was trained on {}, {}; {}",
                      config_.where("data." + role_), role_, paths_now(), checkpoint_, paths_then(),
                      reordered ? "the same in another order" : "whose content is another",
                      way_out("Name those"));
  }

 private:
  using Content = std::pair<std::string, std::string>;  // hashes of .bin and .idx

  std::vector<Content> contents(const Contents& all) const {
    std::vector<Content> out;
    const auto hash = [&](const char* ending) {
      const auto found = all.find(fmt::format("{}.{}.{}", role_, out.size(), ending));
      return found == all.end() ? "" : found->second;
    };
    while (!hash("bin").empty()) out.emplace_back(hash("bin"), hash("idx"));
    return out;
  }
  const std::vector<DataSource>& sources(const Config& config) const {
    return role_ == "train" ? config.data.train : config.data.valid;
  }
  static std::vector<double> weights(const std::vector<DataSource>& sources) {
    std::vector<double> out;
    for (const DataSource& source : sources) out.push_back(source.weight);
    return out;
  }
  static std::string paths(const std::vector<DataSource>& sources) {
    std::vector<std::string> out;
    for (const DataSource& source : sources) out.push_back(source.path);
    return fmt::format("[{}]", fmt::join(out, ", "));
  }
  std::string way_out(const std::string& mend) const {
    return fmt::format(
        "resuming would repeat or skip text. {}, or start anew: run.resume=never here (old "
        "checkpoints are kept), or another run.dir, with run.init={} to begin with its weights",
        mend, checkpoint_);
  }

  std::string role_;
  const Config& config_;
  std::string checkpoint_;
  std::vector<Content> now_, then_;
  const std::vector<DataSource>&now_sources_, &then_sources_;
};

void refuse_other_model(const Config& config, const std::string& checkpoint, const Change& change) {
  throw ConfigError(
      "{}: {} = {}, but {} was trained with {}; use "
      "that value, another run.dir, or run.resume=never",
      config.where(change.key), change.key, change.now, checkpoint, change.before);
}

void check_tokenizer(const Config& config, const Manifest& now, const FoundCheckpoint& checkpoint) {
  const auto then = checkpoint.manifest.data.find("tokenizer"), here = now.data.find("tokenizer");
  if (then == checkpoint.manifest.data.end() || here == now.data.end()) return;
  if (then->second == here->second) return;
  throw ConfigError(
      "{}: the tokenizer.json is another than that of {}, whose ids have other "
      "meanings; restore it (a copy lies in run.dir), or use another run.dir",
      config.where("data.tokenizer"), checkpoint.path);
}

std::string ranks_of(const Manifest& manifest) {
  const auto found = manifest.layout.find("ranks");
  return found == manifest.layout.end() ? "unknown" : std::to_string(found->second);
}

}  // namespace

std::vector<std::string> check_resumable(const Config& config, const Manifest& now,
                                         const FoundCheckpoint& checkpoint) {
  const Config before = config_from_text(checkpoint.manifest.config, checkpoint.path);
  std::vector<Change> samples, rest;
  for (const Change& change : changes(keys_of(before), keys_of(config))) {
    if (kPlaceKeys.contains(change.key)) continue;
    if (change.key.starts_with("model.") && !kTrainingKeys.contains(change.key))
      refuse_other_model(config, checkpoint.path, change);
    (kSampleKeys.contains(change.key) ? samples : rest).push_back(change);
  }
  check_tokenizer(config, now, checkpoint);

  std::vector<std::string> said;
  const RoleCheck train("train", config, now, before, checkpoint);
  if (!train.known()) {
    said.push_back(fmt::format("data     {} does not say what it was trained on: not compared",
                               checkpoint.path));
  } else if (!train.same()) {
    train.refuse_other_content();
  } else if (train.weights_now() != train.weights_then()) {
    samples.push_back({"weights of data.train", fmt::format("{}", train.weights_then()),
                       fmt::format("{}", train.weights_now())});
  }
  const RoleCheck valid("valid", config, now, before, checkpoint);
  if (!valid.same()) {
    valid.refuse_files_that_changed();
    const bool moves_split =
        config.data.split > 0 && config.data.valid.empty() != before.data.valid.empty();
    (moves_split ? samples : rest).push_back({"data.valid", valid.paths_then(), valid.paths_now()});
  }
  const std::string ranks_then = ranks_of(checkpoint.manifest), ranks_now = ranks_of(now);
  if (ranks_then != ranks_now) rest.push_back({"ranks", ranks_then, ranks_now});
  if (!samples.empty()) {
    said.push_back(sentence(samples) +
                   ": samples are other ones from here on, so "
                   "that some text comes again and some later");
  }
  if (!rest.empty()) said.push_back(sentence(rest));
  return said;
}

}  // namespace weft
