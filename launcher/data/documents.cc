#include "launcher/data/documents.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/json_reason.h"
#include "core/base/permutation.h"
#include "core/base/utf8.h"
#include "core/data/roff.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string text_in_json(const TextInputs& inputs, const std::string& file,
                         const RawDocument& document) {
  const std::string where = fmt::format("{}:{}", file, document.line);
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(document.text);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError("{}: not JSON: {}; --jsonl needs one object per line", where,
                      json_reason(error.what()));
  }
  if (!object.is_object()) {
    throw ConfigError("{}: a JSON {} instead of an object; --jsonl needs one object per line",
                      where, object.type_name());
  }
  const auto found = object.find(inputs.key);
  if (found != object.end() && found->is_string()) return found->get<std::string>();
  if (found != object.end()) {
    throw ConfigError("{}: under the key \"{}\" stands a {}, not a text", where, inputs.key,
                      found->type_name());
  }
  std::vector<std::string> keys;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) keys.push_back(name);
  }
  throw ConfigError("{}: no text under the key \"{}\"; it has texts under [{}], see --key", where,
                    inputs.key, fmt::join(keys, ", "));
}

}  // namespace

void check_inputs(const TextInputs& inputs) {
  const bool whole = inputs.document == TextInputs::Document::kFile;
  if (inputs.jsonl && (inputs.strip != TextInputs::Strip::kNothing || !whole)) {
    throw ConfigError(
        "--jsonl has one document per line already: leave out --document and --strip");
  }
  if (inputs.strip == TextInputs::Strip::kRoff && !whole) {
    throw ConfigError("--strip roff needs whole pages: leave out --document");
  }
}

std::vector<std::string> files_under(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!fs::exists(input)) throw ConfigError("{} does not exist", input);
    if (!fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    const auto begin = static_cast<std::ptrdiff_t>(files.size());
    const auto skip = fs::directory_options::skip_permission_denied;
    for (const auto& entry : fs::recursive_directory_iterator(input, skip)) {
      if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path().string());
    }
    std::sort(files.begin() + begin, files.end());
  }
  return files;
}

std::vector<std::string> files_of(const TextInputs& inputs) {
  std::vector<std::string> files = files_under(inputs.inputs);
  if (inputs.shuffle < 0 || files.empty()) return files;
  const Permutation order(static_cast<uint64_t>(inputs.shuffle), "data.build", std::ssize(files));
  std::vector<std::string> out;
  for (int64_t i = 0; i < order.count(); ++i)
    out.push_back(std::move(files[static_cast<size_t>(order(i))]));
  return out;
}

void DocumentReader::open_file() {
  const std::string& file = files_[position_.file];
  if (!is_parquet(file)) {
    text_ = std::make_unique<TextReader>(file);
    return;
  }
  if (inputs_.strip != TextInputs::Strip::kNothing ||
      inputs_.document != TextInputs::Document::kFile) {
    throw ConfigError(
        "{}: each text of a Parquet file is a document already: leave out --document and --strip",
        file);
  }
  parquet_ = std::make_unique<ParquetReader>(file, inputs_.key, threads_);
}

std::optional<RawDocument> DocumentReader::next() {
  while (position_.file < files_.size()) {
    if (text_ == nullptr && parquet_ == nullptr) open_file();
    if (auto document = next_of_file()) {
      ++position_.document;
      return document;
    }
    text_.reset();
    parquet_.reset();
    position_ = {position_.file + 1, 0};
  }
  return std::nullopt;
}

std::optional<RawDocument> DocumentReader::next_of_file() {
  if (parquet_ != nullptr) {
    const auto text = parquet_->next();
    if (!text) return std::nullopt;
    if (std::ssize(*text) > TextReader::kLongest) {
      throw ConfigError("{}: text {} has more than {} MB", files_[position_.file],
                        position_.document + 1, TextReader::kLongest >> 20);
    }
    return RawDocument{std::string(*text), position_.file, position_.document + 1};
  }
  auto text = next_text();
  if (!text) return std::nullopt;
  return RawDocument{std::move(*text), position_.file, text_->lines(), inputs_.jsonl};
}

std::optional<std::string> DocumentReader::next_text() {
  if (inputs_.jsonl) {
    auto line = text_->line();
    while (line && blank(*line)) line = text_->line();
    return line;
  }
  switch (inputs_.document) {
    case TextInputs::Document::kLine: return text_->line();
    case TextInputs::Document::kParagraph: return paragraph();
    default:
      if (position_.document > 0) return std::nullopt;
      return text_->rest();
  }
}

std::optional<std::string> DocumentReader::paragraph() {
  std::string paragraph;
  while (const auto line = text_->line()) {
    if (line->find_first_not_of(" \t") != std::string::npos)
      paragraph += *line + "\n";
    else if (!paragraph.empty())
      return paragraph;
  }
  return paragraph.empty() ? std::nullopt : std::optional(paragraph);
}

void DocumentReader::skip_to(Position position) {
  WEFT_CHECK(position_.file == 0 && position_.document == 0, "skips only from the start");
  position_.file = position.file;
  if (position_.file < files_.size()) open_file();
  if (parquet_ != nullptr) {
    parquet_->skip(position.document);
    position_.document = position.document;
  }
  while (position_.file == position.file && position_.document < position.document && next()) {
  }
}

Verdict text_of(const TextInputs& inputs, const std::string& file, RawDocument document,
                std::string& text) {
  text = document.json ? text_in_json(inputs, file, document) : std::move(document.text);
  if (text.find('\0') != std::string::npos || !is_utf8(text)) return Verdict::kNotText;
  if (inputs.strip == TextInputs::Strip::kRoff) text = text_of_roff(text);
  return blank(text) ? Verdict::kEmpty : Verdict::kText;
}

}  // namespace weft
