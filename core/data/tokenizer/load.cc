#include <filesystem>

#include "core/base/error.h"
#include "core/data/tokenizer.h"
#include "core/data/tokenizer/hf_tokenizer.h"
#include "core/data/tokenizer/sentencepiece_tokenizer.h"
#include "core/data/tokenizer/tiktoken.h"
#include "core/files/mapped_file.h"

namespace weft {
namespace {

constexpr int64_t kLargestFile = int64_t{256} << 20;

std::string whole_file(const std::string& path) {
  const MappedFile file(path);
  if (file.size() > kLargestFile) {
    throw ConfigError("{}: {} bytes; the file of a tokenizer has at most {}", path, file.size(),
                      kLargestFile);
  }
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

// A SentencePiece model begins with its first piece: field 1, a message.
bool looks_like_sentencepiece(std::string_view content) {
  return content.size() > 2 && content[0] == '\x0a' && content[2] == '\x0a';
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer(std::string content, const std::string& name,
                                           const std::string& end_of_document, EndOfDocument need,
                                           const std::string& pattern) {
  if (looks_like_tiktoken(content)) {
    const std::string json = tiktoken_as_json({content, name, pattern, {}, {}});
    return hf_tokenizer(json, name, end_of_document, need);
  }
  if (!pattern.empty())
    throw ConfigError("{}: --pattern is for rank files of tiktoken, and this is none", name);
  if (looks_like_sentencepiece(content))
    return sentencepiece_tokenizer(std::move(content), name, end_of_document, need);
  return hf_tokenizer(std::move(content), name, end_of_document, need);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path,
                                          const std::string& end_of_document, EndOfDocument need,
                                          const std::string& pattern) {
  std::string content = whole_file(path);
  const std::string config =
      (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
  if (!looks_like_tiktoken(content) || !std::filesystem::exists(config))
    return parse_tokenizer(std::move(content), path, end_of_document, need, pattern);
  const TiktokenFile file{.content = content,
                          .name = path,
                          .pattern = pattern,
                          .config = whole_file(config),
                          .config_name = config};
  return hf_tokenizer(tiktoken_as_json(file), path, end_of_document, need);
}

}  // namespace weft
