#include "launcher/train/run_data.h"

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
  std::vector<SamplerSource> train, valid;
  for (size_t i = 0; i < config.data.train.size(); ++i) {
    SamplerSource part = opener.open("train", i, config.data.train[i], data);
    data.train_tokens += part.data->tokens();
    if (config.data.split > 0 && config.data.valid.empty()) {
      SamplerSource held = part;
      held.first_document = validation_border(*part.data, config.data.split);
      part.documents = held.first_document;
      valid.push_back(held);
    }
    train.push_back(part);
  }
  for (size_t i = 0; i < config.data.valid.size(); ++i) {
    valid.push_back(opener.open("valid", i, config.data.valid[i], data));
  }
  const SamplerOptions options{.sequence = config.train.sequence,
                               .seed = static_cast<uint64_t>(config.train.seed),
                               .pack = config.data.pack};
  try {
    data.train = std::make_unique<Sampler>(std::move(train), options);
    if (!valid.empty() && config.data.eval_every > 0) {
      data.valid = std::make_unique<Sampler>(std::move(valid), options);
    }
  } catch (const ConfigError& e) {  // too short for one sample
    throw ConfigError("{}: {}", config.where("train.sequence"), e.what());
  }
  return data;
}

}  // namespace weft
