#include "launcher/train/run_data.h"

#include <algorithm>
#include <filesystem>

#include "core/files/content_hash.h"
#include "launcher/data/tokenizer_files.h"
#include "launcher/eval/shared_pass.h"

namespace weft {
namespace {

// Opens what a config names, and notes what it is.
class DataOpener {
 public:
  DataOpener(const Config& config, Exec& exec, HostGroup& ranks)
      : config_(config), exec_(exec), ranks_(ranks) {}

  // Dataset `index` of data.train or data.valid.
  SamplerSource open(const std::string& role, size_t index, const DataSource& source,
                     RunData& data) {
    const std::string key = "data." + role;
    if (!std::filesystem::exists(dataset_prefix(source.path) + ".idx")) {
      throw ConfigError(
          "{}: {} names {}, but {}.idx does not exist; weft data build makes it from text "
          "(launcher/quickstart makes runs/quickstart/corpus)",
          config_.where(key), key, source.path, dataset_prefix(source.path));
    }
    const auto dataset = std::make_shared<IndexedDataset>(source.path);
    const DatasetHashes hashes = check_together(*dataset, config_.model.vocab, exec_, ranks_);
    data.hashes[dataset->bin_path()] = data.contents[fmt::format("{}.{}.bin", role, index)] =
        hashes.bin;
    data.hashes[dataset->idx_path()] = data.contents[fmt::format("{}.{}.idx", role, index)] =
        hashes.idx;
    return {.data = dataset, .weight = source.weight};
  }

 private:
  const Config& config_;
  Exec& exec_;
  HostGroup& ranks_;
};

// Sources that are measured together.
struct ValidSources {
  std::string name;
  double weight;
  std::vector<SamplerSource> sources;
};

// A set of each name, and of each source without one under its file's name.
void add_valid_source(const DataSource& from, SamplerSource source,
                      std::vector<ValidSources>& sets) {
  const std::string own = from.set.empty()
                              ? std::filesystem::path(dataset_prefix(from.path)).filename().string()
                              : from.set;
  std::string name = own;
  const auto found = [&] {
    return std::find_if(sets.begin(), sets.end(), [&](const auto& s) { return s.name == name; });
  };
  if (!from.set.empty() && found() != sets.end()) {
    found()->sources.push_back(std::move(source));
    return;
  }
  for (int number = 2; found() != sets.end(); ++number) name = fmt::format("{}.{}", own, number);
  const double weight = from.set.empty() ? source.weight : 1.0;
  sets.push_back({name, weight, {std::move(source)}});
}

}  // namespace

RunData open_data(const Config& config, Exec& exec, HostGroup& ranks) {
  if (config.data.train.empty()) {
    throw ConfigError("{}: data.train names no dataset; weft data build makes one from text",
                      config.where("data.train"));
  }
  RunData data;
  data.tokenizer = tokenizer_of_run(config);
  if (!data.tokenizer.empty()) {
    data.hashes[data.tokenizer] = data.contents["tokenizer"] = content_hash(data.tokenizer);
  }
  DataOpener opener(config, exec, ranks);
  std::vector<SamplerSource> train;
  std::vector<ValidSources> valid;
  for (size_t i = 0; i < config.data.train.size(); ++i) {
    SamplerSource part = opener.open("train", i, config.data.train[i], data);
    data.train_tokens += part.data->tokens();
    if (config.data.split > 0 && config.data.valid.empty()) {
      SamplerSource held = part;
      held.first_document = validation_border(*part.data, config.data.split);
      part.documents = held.first_document;
      if (valid.empty()) valid.push_back({"", 1.0, {}});
      valid[0].sources.push_back(held);
    }
    train.push_back(part);
  }
  for (size_t i = 0; i < config.data.valid.size(); ++i) {
    const DataSource& source = config.data.valid[i];
    add_valid_source(source, opener.open("valid", i, source, data), valid);
  }
  if (valid.size() == 1 && config.data.valid.size() == 1 && config.data.valid[0].set.empty())
    valid[0].name = "";
  const SamplerOptions options{.sequence = config.train.sequence,
                               .seed = static_cast<uint64_t>(config.train.seed),
                               .pack = config.data.pack};
  try {
    data.train = std::make_unique<Sampler>(std::move(train), options);
    for (ValidSources& set : valid) {
      if (config.data.eval_every == 0) break;
      data.valid.push_back(
          {set.name, set.weight, std::make_unique<Sampler>(std::move(set.sources), options)});
    }
  } catch (const ConfigError& e) {  // too short for one sample
    throw ConfigError("{}: {}", config.where("train.sequence"), e.what());
  }
  return data;
}

}  // namespace weft
