#include "launcher/data/tokenizer_files.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/data/indexed_dataset.h"
#include "core/files/hash.h"
#include "core/files/new_file.h"
#include "core/files/regular_file.h"
#include "parallel/checkpoint/checked_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kTokenizerName = "tokenizer.json";

// The content of a tokenizer.json, or another tokenizer's file as one.
std::string json_of(const std::string& path) {
  std::string content = content_of(path);
  return content.starts_with('{') ? content : load_for_text(path)->json();
}

void check_size(const Tokenizer& tokenizer, const std::string& name, const Config& config) {
  if (tokenizer.vocab() <= config.model.vocab) return;
  throw ConfigError(
      "{}: {} has {} ids, model.vocab = {} holds fewer; use "
      "the tokenizer of the training data, or model.vocab={}",
      config.where("model.vocab"), name, tokenizer.vocab(), config.model.vocab, tokenizer.vocab());
}

}  // namespace

std::string tokenizer_beside(const std::string& dataset_prefix) {
  const std::string path = dataset_prefix + ".tokenizer.json";
  return fs::exists(path) ? path : "";
}

std::unique_ptr<Tokenizer> load_for_text(const std::string& path, const std::string& pattern) {
  return load_tokenizer(path, "", EndOfDocument::kOptional, pattern);
}

std::string tokenizer_of_run(const Config& config) {
  std::string path = config.data.tokenizer;
  if (!path.empty() && !fs::exists(path)) {
    throw ConfigError("{}: data.tokenizer = {} does not exist", config.where("data.tokenizer"),
                      path);
  }
  for (const DataSource& source : config.data.train) {
    const std::string beside = tokenizer_beside(dataset_prefix(source.path));
    if (beside.empty()) continue;
    if (path.empty()) path = beside;
    if (hash_of(json_of(path)) == hash_of(json_of(beside))) continue;
    throw ConfigError(
        "{}: {} was made with another tokenizer ({}) than {}; build it again, or remove that file "
        "if the two are the same in meaning",
        config.where("data.train"), source.path, beside, path);
  }
  if (!path.empty()) check_size(*load_tokenizer(path, config.data.end_of_document), path, config);
  return path;
}

OtherFiles tokenizer_file(const std::string& path) {
  if (path.empty()) return {};
  return {{kTokenizerName, json_of(path)}};
}

void keep_tokenizer(const std::string& path, const std::string& run_dir) {
  if (path.empty() || !fs::is_directory(run_dir)) return;
  const std::string to = run_dir + "/" + kTokenizerName, content = json_of(path);
  if (fs::exists(to) && content_of(to) == content) return;
  NewFile copy(to);
  copy.write(content.data(), std::ssize(content));
  copy.finish();
}

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const FoundCheckpoint& checkpoint,
                                                   const Config& config, const std::string& asked) {
  const auto fitting = [&](std::string content, const std::string& name) {
    auto tokenizer = parse_tokenizer(std::move(content), name, config.data.end_of_document,
                                     EndOfDocument::kOptional);
    check_size(*tokenizer, name, config);
    return tokenizer;
  };
  if (!asked.empty()) return fitting(content_of(asked), asked);
  const Manifest::File* const own = other_file(checkpoint.manifest, kTokenizerName);
  if (own != nullptr) {
    return fitting(content_of(checkpoint.path, *own), checkpoint.path + "/" + kTokenizerName);
  }
  const fs::path step = fs::path(checkpoint.path + "/").lexically_normal().parent_path();
  const std::string of_run = (step.parent_path().parent_path() / kTokenizerName).string();
  for (const std::string& place : {of_run, config.data.tokenizer}) {
    if (!place.empty() && fs::exists(place)) return fitting(content_of(place), place);
  }
  auto bytes = std::make_unique<ByteTokenizer>();
  if (config.model.vocab >= bytes->vocab()) return bytes;
  throw ConfigError(
      "{}: has no tokenizer.json, and a vocabulary of {} cannot "
      "be the byte tokenizer's ({} ids); give --tokenizer FILE",
      checkpoint.path, config.model.vocab, bytes->vocab());
}

}  // namespace weft
