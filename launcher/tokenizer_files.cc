#include "launcher/tokenizer_files.h"

#include <filesystem>

#include "core/error.h"
#include "core/hash.h"
#include "core/indexed_dataset.h"
#include "core/new_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void check_size(const Tokenizer& tokenizer, const std::string& name, const Config& config) {
  if (tokenizer.vocab() <= config.model.vocab) return;
  throw ConfigError(
      "{}: {} has {} ids, model.vocab = {} holds fewer; use the tokenizer of the training data, or "
      "model.vocab={}",
      config.where("model.vocab"), name, tokenizer.vocab(), config.model.vocab, tokenizer.vocab());
}

std::string content_of(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

}  // namespace

std::string tokenizer_beside(const std::string& dataset_prefix) {
  const std::string path = dataset_prefix + ".tokenizer.json";
  return fs::exists(path) ? path : "";
}

std::unique_ptr<Tokenizer> load_for_text(const std::string& path) {
  return load_tokenizer(path, "", EndOfDocument::kOptional);
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
    if (hash_of(content_of(path)) == hash_of(content_of(beside))) continue;
    throw ConfigError(
        "{}: {} was made with another tokenizer ({}) than {}; build it again, or remove that file "
        "if "
        "the two are the same in meaning",
        config.where("data.train"), source.path, beside, path);
  }
  if (!path.empty()) check_size(*load_tokenizer(path, config.data.end_of_document), path, config);
  return path;
}

void keep_tokenizer(const std::string& path, const std::string& folder) {
  if (path.empty() || !fs::is_directory(folder)) return;
  const std::string to = folder + "/tokenizer.json", content = content_of(path);
  if (fs::exists(to) && content_of(to) == content) return;
  NewFile copy(to);
  copy.write(content.data(), std::ssize(content));
  copy.finish();
}

std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::string& checkpoint,
                                                   const Config& config, const std::string& asked) {
  const fs::path folder = fs::path(checkpoint).lexically_normal();
  const fs::path step = folder.has_filename() ? folder : folder.parent_path();
  std::vector<std::string> places = {(step / "tokenizer.json").string(),
                                     (step.parent_path().parent_path() / "tokenizer.json").string(),
                                     config.data.tokenizer};
  if (!asked.empty()) places = {asked};
  for (const std::string& place : places) {
    if (place.empty() || (asked.empty() && !fs::exists(place))) continue;
    auto tokenizer = load_tokenizer(place, config.data.end_of_document, EndOfDocument::kOptional);
    check_size(*tokenizer, place, config);
    return tokenizer;
  }
  auto bytes = std::make_unique<ByteTokenizer>();
  if (config.model.vocab >= bytes->vocab()) return bytes;
  throw ConfigError(
      "{}: has no tokenizer.json, and a vocabulary of {} cannot be the byte tokenizer's ({} ids); "
      "give "
      "--tokenizer FILE",
      checkpoint, config.model.vocab, bytes->vocab());
}

}  // namespace weft
