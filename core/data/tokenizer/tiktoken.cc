#include "core/data/tokenizer/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/base/json_reason.h"
#include "core/data/tokenizer/byte_alphabet.h"
#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/pre_tokenizer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using Ranks = std::unordered_map<std::string, int32_t>;

struct RankLine {
  std::string token;
  int64_t rank;
};

// Nothing for what is not base64, a space and a number.
std::optional<RankLine> parse_rank_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return std::nullopt;
  auto token = from_base64(line.substr(0, space));
  const std::string_view number = line.substr(space + 1);
  int64_t rank = -1;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (!token || token->empty() || number.empty() || rank < 0 || end.ec != std::errc() ||
      end.ptr != number.data() + number.size())
    return std::nullopt;
  return RankLine{std::move(*token), rank};
}

Ranks read_ranks(const TiktokenFile& file) {
  Ranks ranks;
  std::unordered_map<int64_t, int64_t> lines_of;  // by rank
  const int64_t largest = 4 * static_cast<int64_t>(file.content.size()) + (1 << 16);
  int64_t number = 0;
  for (size_t at = 0; at < file.content.size();) {
    const size_t end = std::min(file.content.find('\n', at), file.content.size());
    const std::string_view line = file.content.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.empty() || line == "\r") continue;
    const auto refuse = [&](const std::string& reason) {
      throw ConfigError("{}: line {}: {}", file.name, number, reason);
    };
    auto entry = parse_rank_line(line);
    if (!entry) refuse("not a token in base64, a space and its rank");
    if (entry->rank > largest / 8)
      refuse(fmt::format("rank {} in a file of so few tokens", entry->rank));
    const auto [other, fresh] = lines_of.emplace(entry->rank, number);
    if (!fresh) refuse(fmt::format("rank {} is that of line {} too", entry->rank, other->second));
    if (!ranks.emplace(std::move(entry->token), static_cast<int32_t>(entry->rank)).second)
      refuse("the token stands there twice");
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!ranks.contains(std::string(1, static_cast<char>(byte))))
      throw ConfigError("{}: byte {} has no rank", file.name, byte);
  }
  return ranks;
}

// Pairs in the order of the ranks of what they make.
Json merges_of(const Ranks& ranks) {
  std::vector<const Ranks::value_type*> order;
  for (const auto& entry : ranks) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->second < b->second; });
  Json merges = Json::array();
  for (const auto* entry : order) {
    const std::string& token = entry->first;
    // A token that takes longer than this to cut in two is no word of a text.
    if (token.size() > 4096) continue;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      if (ranks.contains(left) && ranks.contains(right))
        merges.push_back({spelled(left), spelled(right)});
    }
  }
  return merges;
}

Json pre_tokenizer_of(const std::string& pattern) {
  Json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
  if (pattern == "gpt2") {
    split["pattern"]["Regex"] = kGpt2Pattern;
  } else if (pattern == "llama3") {
    split["pattern"]["Regex"] = kLlama3Pattern;
  } else if (pattern == "qwen2") {
    split["pattern"]["Regex"] = kQwen2Pattern;
  } else if (pattern == "o200k") {
    split["pattern"]["Regex"] = kO200kPattern;
  } else {
    // Between matches tiktoken drops the text.
    split["pattern"]["Regex"] = pattern;
    split["behavior"] = "Removed";
    split["invert"] = true;
  }
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

// Special tokens of a tokenizer_config.json: into `vocabulary` and as added tokens.
Json added_tokens_of(const TiktokenFile& file, Json& vocabulary) {
  Json added = Json::array();
  if (file.config.empty()) return added;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(file.config);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError("{}: not JSON: {}", file.config_name, json_reason(error.what()));
  }
  const JsonPart tokens = JsonPart(json, file.config_name)["added_tokens_decoder"];
  if (tokens.null()) return added;
  if (!tokens.value().is_object()) tokens.refuse("an object of ids is expected");
  std::vector<int32_t> taken;
  for (const auto& entry : vocabulary.items()) taken.push_back(entry.value().get<int32_t>());
  std::sort(taken.begin(), taken.end());
  for (const auto& [key, value] : tokens.value().items()) {
    const JsonPart token = tokens[key];
    int32_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0)
      token.refuse("the key is no id");
    const std::string content = token["content"].text();
    if (std::binary_search(taken.begin(), taken.end(), id))
      token.refuse(fmt::format("id {} is a rank of {}", id, file.name));
    if (content.empty() || vocabulary.contains(content))
      token.refuse(fmt::format("\"{}\" is a token already, or empty", content));
    vocabulary[content] = id;
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", token["single_word"].flag(false)},
                     {"lstrip", token["lstrip"].flag(false)},
                     {"rstrip", token["rstrip"].flag(false)},
                     {"normalized", token["normalized"].flag(false)},
                     {"special", token["special"].flag(true)}});
  }
  return added;
}

}  // namespace

bool looks_like_tiktoken(std::string_view content) {
  return parse_rank_line(content.substr(0, content.find('\n'))).has_value();
}

std::string tiktoken_as_json(const TiktokenFile& file) {
  if (file.pattern.empty()) {
    throw ConfigError(
        "{}: a rank file of tiktoken does not say how text is cut into words: give --pattern "
        "gpt2, llama3, qwen2, o200k or a regular expression",
        file.name);
  }
  const Ranks ranks = read_ranks(file);
  Json vocabulary = Json::object();
  for (const auto& [token, rank] : ranks) vocabulary[spelled(token)] = rank;
  const Json added = added_tokens_of(file, vocabulary);
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", true},
                      {"vocab", vocabulary},
                      {"merges", merges_of(ranks)}};
  const Json decoder = {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  const Json all = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", pre_tokenizer_of(file.pattern)},
                    {"post_processor", nullptr},
                    {"decoder", decoder},
                    {"model", model}};
  return all.dump() + "\n";
}

}  // namespace weft
