#include "launcher/run_data.h"

#include <filesystem>

#include "core/mapped_file.h"
#include "launcher/tokenizer_files.h"

namespace weft {
namespace {

std::shared_ptr<IndexedDataset> open_checked(const std::string& path, const Config& config,
                                             const std::string& key, RunData& data) {
  if (!std::filesystem::exists(dataset_prefix(path) + ".idx")) {
    throw ConfigError("{}: {} names {}, but {}.idx does not exist; weft data build makes it from text "
                      "(launcher/quickstart makes runs/quickstart/corpus)",
                      config.where(key), key, path, dataset_prefix(path));
  }
  auto dataset = std::make_shared<IndexedDataset>(path);
  dataset->check_tokens(config.model.vocab);
  for (const std::string& file : {dataset->bin_path(), dataset->idx_path()}) {
    data.hashes[file] = content_hash(file);
  }
  return dataset;
}

}  // namespace

RunData open_data(const Config& config) {
  if (config.data.train.empty()) {
    throw ConfigError("{}: data.train names no dataset; weft data build makes one from text",
                      config.where("data.train"));
  }
  RunData data;
  data.tokenizer = tokenizer_of_run(config);
  if (!data.tokenizer.empty()) data.hashes[data.tokenizer] = content_hash(data.tokenizer);
  std::vector<SamplerSource> train, valid;
  for (const DataSource& source : config.data.train) {
    SamplerSource part{.data = open_checked(source.path, config, "data.train", data),
                       .weight = source.weight};
    data.train_tokens += part.data->tokens();
    if (config.data.split > 0 && config.data.valid.empty()) {
      SamplerSource held = part;
      held.first_document = validation_border(*part.data, config.data.split);
      part.documents = held.first_document;
      valid.push_back(held);
    }
    train.push_back(part);
  }
  for (const DataSource& source : config.data.valid) {
    valid.push_back({.data = open_checked(source.path, config, "data.valid", data),
                     .weight = source.weight});
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
