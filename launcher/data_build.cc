#include "launcher/data_build.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/indexed_dataset.h"
#include "core/permutation.h"
#include "core/roff.h"
#include "core/text_reader.h"
#include "core/tokenizer.h"
#include "core/utf8.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// One line that renews itself on a terminal; a plain line every five seconds elsewhere.
class Progress {
 public:
  explicit Progress(size_t files) : files_(files) {}
  ~Progress() {
    if (shown_ && terminal_) fmt::print(stderr, "\r\033[K");
  }

  void show(const DataBuilt& built) {
    const auto now = Clock::now();
    if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5)))
      return;
    last_ = now;
    shown_ = true;
    const double mb = static_cast<double>(built.bytes) / 1e6;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    fmt::print(stderr, "{}file {} of {}  {} documents  {:.1f} MB  {:.1f} MB/s{}",
               terminal_ ? "\r\033[K" : "", built.files, files_, built.documents, mb, mb / seconds,
               terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const size_t files_;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
  bool shown_ = false;
};

using Take = std::function<bool(std::string text)>;  // false: enough

// The documents of a file, until `take` has enough.
bool split_lines(TextReader& reader, const Take& take) {
  while (auto line = reader.line()) {
    if (!take(std::move(*line))) return false;
  }
  return true;
}

bool split_paragraphs(TextReader& reader, const Take& take) {
  std::string paragraph;
  const auto give = [&] { return paragraph.empty() || take(std::exchange(paragraph, {})); };
  while (const auto line = reader.line()) {
    if (line->find_first_not_of(" \t") == std::string::npos) {
      if (!give()) return false;
    } else {
      paragraph += *line;
      paragraph += '\n';
    }
  }
  return give();
}

bool split_jsonl(const std::string& path, const std::string& key, TextReader& reader,
                 const Take& take) {
  while (const auto line = reader.line()) {
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    const auto object = nlohmann::json::parse(*line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) {
      throw ConfigError("{}:{}: not a JSON object; --jsonl needs one per line", path,
                        reader.lines());
    }
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) {
      std::vector<std::string> keys;
      for (const auto& [name, value] : object.items()) {
        if (value.is_string()) keys.push_back(name);
      }
      throw ConfigError("{}:{}: no text under the key \"{}\"; it has texts under [{}], see --key",
                        path, reader.lines(), key, fmt::join(keys, ", "));
    }
    if (!take(found->get<std::string>())) return false;
  }
  return true;
}

void refuse_to_overwrite(const DataBuild& options) {
  if (options.force) return;
  for (const char* ending : {".bin", ".idx", ".tokenizer.json"}) {
    if (!fs::exists(options.out + ending)) continue;
    throw ConfigError("{}{} exists; choose another --out, or overwrite it with --force",
                      options.out, ending);
  }
}

std::vector<std::string> shuffled(std::vector<std::string> files, int64_t seed) {
  if (seed < 0 || files.empty()) return files;
  const Permutation order(static_cast<uint64_t>(seed), "data.build", std::ssize(files));
  std::vector<std::string> out;
  for (int64_t i = 0; i < order.count(); ++i) {
    out.push_back(std::move(files[static_cast<size_t>(order(i))]));
  }
  return out;
}

class Builder {
 public:
  explicit Builder(const DataBuild& options)
      : options_(options), writer_(options.out, token_type_for(tokenizer_.vocab())) {}

  DataBuilt run(const std::vector<std::string>& files) {
    Progress progress(files.size());
    for (const std::string& path : files) {
      ++built_.files;
      const bool more = read_file(path, [&](std::string text) {
        add(std::move(text));
        progress.show(built_);
        return options_.max_bytes == 0 || built_.bytes < options_.max_bytes;
      });
      if (!more) break;
    }
    if (built_.documents == 0) {
      throw ConfigError("no text in {} files ({} documents are not UTF-8, {} are empty)",
                        built_.files, built_.not_text, built_.empty);
    }
    built_.tokens = writer_.tokens();
    writer_.finish();
    NewFile json(options_.out + ".tokenizer.json");
    const std::string text = tokenizer_.json();
    json.write(text.data(), static_cast<int64_t>(text.size()));
    json.finish();
    return built_;
  }

 private:
  bool read_file(const std::string& path, const Take& take) {
    TextReader reader(path);
    if (options_.jsonl) return split_jsonl(path, options_.key, reader, take);
    switch (options_.document) {
      case DataBuild::Document::kLine:
        return split_lines(reader, take);
      case DataBuild::Document::kParagraph:
        return split_paragraphs(reader, take);
      default:
        return take(reader.rest());
    }
  }

  void add(std::string text) {
    if (text.find('\0') != std::string::npos || !is_utf8(text)) {
      ++built_.not_text;
      return;
    }
    if (options_.strip == DataBuild::Strip::kRoff) text = text_of_roff(text);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
      ++built_.empty;
      return;
    }
    std::vector<int32_t> ids = tokenizer_.encode(text);
    ids.push_back(tokenizer_.end_of_document());
    writer_.add_document(ids);
    built_.bytes += static_cast<int64_t>(text.size());
    ++built_.documents;
  }

  const DataBuild& options_;
  ByteTokenizer tokenizer_;
  IndexedDatasetWriter writer_;
  DataBuilt built_;
};

}  // namespace

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

DataBuilt build_dataset(const DataBuild& options) {
  if (options.jsonl && (options.strip != DataBuild::Strip::kNothing ||
                        options.document != DataBuild::Document::kFile)) {
    throw ConfigError(
        "--jsonl has one document per line already: leave out --document and --strip");
  }
  if (options.strip == DataBuild::Strip::kRoff && options.document != DataBuild::Document::kFile) {
    throw ConfigError("--strip roff needs whole pages: leave out --document");
  }
  refuse_to_overwrite(options);
  const std::vector<std::string> files = shuffled(files_under(options.inputs), options.shuffle);
  const fs::path folder = fs::path(options.out).parent_path();
  std::error_code failed;
  if (!folder.empty()) fs::create_directories(folder, failed);
  if (failed) throw ConfigError("cannot make {}: {}", folder.string(), failed.message());
  return Builder(options).run(files);
}

}  // namespace weft
