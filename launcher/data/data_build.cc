#include "launcher/data/data_build.h"

#include <algorithm>
#include <filesystem>
#include <future>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/data/dataset_build.h"
#include "core/files/hash.h"
#include "core/threads/thread_pool.h"
#include "launcher/data/text_progress.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void refuse_to_overwrite(const DataBuild& options) {
  if (options.force || DatasetBuild::was_finishing(options.out)) return;
  for (const char* ending : {".bin", ".idx", ".tokenizer.json"}) {
    if (!fs::exists(options.out + ending)) continue;
    throw ConfigError("{}{} exists; choose another --out, or overwrite it with --force",
                      options.out, ending);
  }
}

// Of everything the dataset depends on. Files are told by name, size and time.
std::string fingerprint_of(const DataBuild& o, const Tokenizer& tokenizer,
                           const std::vector<std::string>& files) {
  std::string all =
      fmt::format("3|{}|{}|{}|{}|{}|{}|{}", o.from.jsonl, o.from.key,
                  static_cast<int>(o.from.document), static_cast<int>(o.from.strip), o.max_bytes,
                  hash_of(tokenizer.json()), tokenizer.end_of_document());
  for (const std::string& file : files) {
    std::error_code failed;
    const auto size = fs::file_size(file, failed);
    const auto time = fs::last_write_time(file, failed).time_since_epoch().count();
    all += fmt::format("|{}:{}:{}", file, failed ? 0 : size, failed ? 0 : time);
  }
  return hash_of(all);
}

// Some documents, encoded by one thread.
struct TextBatch {
  std::vector<RawDocument> documents;
  struct Encoded {
    size_t file;
    Verdict verdict;
    int64_t bytes;
    std::vector<int32_t> ids;
  };
  std::vector<Encoded> encoded;
  DocumentReader::Position behind;  // where reading stands after it
};

nlohmann::json note_of(const DataBuilt& built, DocumentReader::Position at) {
  return {{"file", at.file},      {"document", at.document},
          {"files", built.files}, {"documents", built.documents},
          {"bytes", built.bytes}, {"not_text", built.not_text},
          {"empty", built.empty}, {"not_text_in", built.not_text_in}};
}

class Builder {
 public:
  Builder(const DataBuild& options, const Tokenizer& tokenizer, std::vector<std::string> files)
      : options_(options),
        tokenizer_(tokenizer),
        pool_(options.threads > 0 ? options.threads : available_cores()),
        out_(options.out, token_type_for(tokenizer.vocab()),
             fingerprint_of(options, tokenizer, files)),
        reader_(options.from, std::move(files), pool_.size()) {
    built_.started_over = out_.discarded();
    if (!out_.note().empty()) go_on(nlohmann::json::parse(out_.note()));
  }

  DataBuilt run() {
    if (out_.done()) return built_;
    TextProgress progress(options_.show_every);
    const int64_t before = built_.bytes;
    bool enough = false;
    for (std::vector<TextBatch> batches = read(); !batches.empty() && !enough;) {
      auto next = std::async(std::launch::async, [this] { return read(); });
      encode(batches);
      enough = write(batches);
      if (options_.after_batches) options_.after_batches(built_);
      progress.show(fmt::format("file {} of {}  {} documents  {} tokens", built_.files,
                                files().size(), built_.documents, out_.tokens()),
                    built_.bytes - before);
      batches = next.get();
    }
    if (!enough) built_.files = std::ssize(files());
    return finish();
  }

 private:
  const std::vector<std::string>& files() const { return reader_.files(); }

  void go_on(const nlohmann::json& note) {
    position_ = {note.at("file"), note.at("document")};
    built_.files = note.at("files");
    built_.documents = built_.resumed = note.at("documents");
    built_.tokens = out_.tokens();
    built_.bytes = kept_ = note.at("bytes");
    built_.not_text = note.at("not_text");
    built_.empty = note.at("empty");
    built_.not_text_in = note.value("not_text_in", "");
    if (!out_.done()) reader_.skip_to(position_);
  }

  // Some batches for every thread, fewer where documents are long, so that memory is bounded by the
  // longest document.
  std::vector<TextBatch> read() {
    constexpr int64_t kMost = 64 << 20;
    std::vector<TextBatch> batches;
    int64_t all = 0;
    for (int b = 0; b < 4 * pool_.size() && all < kMost; ++b) {
      TextBatch batch;
      for (int64_t bytes = 0; bytes < options_.batch_bytes;) {
        auto document = reader_.next();
        if (!document) break;
        bytes += std::ssize(document->text) + 1;
        batch.documents.push_back(std::move(*document));
      }
      if (batch.documents.empty()) break;
      batch.behind = reader_.position();
      for (const RawDocument& document : batch.documents) all += std::ssize(document.text);
      batches.push_back(std::move(batch));
    }
    return batches;
  }

  void encode(std::vector<TextBatch>& batches) {
    pool_.run(std::ssize(batches), [&](int64_t b) {
      TextBatch& batch = batches[static_cast<size_t>(b)];
      std::string text;
      for (RawDocument& document : batch.documents) {
        const size_t file = document.file;
        const Verdict verdict = text_of(options_.from, files()[file], std::move(document), text);
        batch.encoded.push_back({file, verdict, std::ssize(text), {}});
        if (verdict == Verdict::kText) batch.encoded.back().ids = tokenizer_.encode_document(text);
      }
      batch.documents.clear();
    });
  }

  // True when there is enough text.
  bool write(const std::vector<TextBatch>& batches) {
    for (const TextBatch& batch : batches) {
      for (const TextBatch::Encoded& document : batch.encoded) {
        built_.files = static_cast<int64_t>(document.file) + 1;
        if (document.verdict != Verdict::kText) {
          const bool empty = document.verdict == Verdict::kEmpty;
          if (!empty && built_.not_text == 0) built_.not_text_in = files()[document.file];
          ++(empty ? built_.empty : built_.not_text);
          continue;
        }
        out_.add_document(document.ids);
        built_.bytes += document.bytes;
        ++built_.documents;
        if (options_.max_bytes > 0 && built_.bytes >= options_.max_bytes) return true;
      }
      position_ = batch.behind;
      if (built_.bytes - kept_ < options_.keep_bytes) continue;
      out_.keep(note_of(built_, position_).dump());
      kept_ = built_.bytes;
    }
    return false;
  }

  DataBuilt finish() {
    if (built_.documents == 0) {
      out_.drop();
      throw ConfigError("no text in {} files ({} documents are not UTF-8{}, {} are empty)",
                        built_.files, built_.not_text,
                        built_.not_text > 0 ? ", the first in " + built_.not_text_in : "",
                        built_.empty);
    }
    built_.tokens = out_.tokens();
    out_.finish(note_of(built_, position_).dump(), tokenizer_.json(), options_.while_finishing);
    return built_;
  }

  const DataBuild& options_;
  const Tokenizer& tokenizer_;
  ThreadPool pool_;
  DatasetBuild out_;
  DocumentReader reader_;
  DocumentReader::Position position_;  // behind what is written
  int64_t kept_ = 0;                   // bytes of text at the last keep
  DataBuilt built_;
};

}  // namespace

DataBuilt build_dataset(const DataBuild& options) {
  check_inputs(options.from);
  refuse_to_overwrite(options);
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  if (!options.tokenizer.empty())
    tokenizer = load_tokenizer(options.tokenizer, options.end_of_document, EndOfDocument::kNeeded,
                               options.pattern);
  std::vector<std::string> files = files_of(options.from);
  const fs::path folder = fs::path(options.out).parent_path();
  std::error_code failed;
  if (!folder.empty()) fs::create_directories(folder, failed);
  if (failed) throw ConfigError("cannot make {}: {}", folder.string(), failed.message());
  return Builder(options, *tokenizer, std::move(files)).run();
}

}  // namespace weft
