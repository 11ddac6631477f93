#include "launcher/data.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/indexed_dataset.h"
#include "core/tokenizer.h"
#include "core/utf8.h"
#include "launcher/data_build.h"

namespace weft {
namespace {

// 1234567 as "1,234,567".
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

struct Inspect {
  std::string path;
  int64_t document = -1;
  bool ids = false;
};

// A document's text for a terminal, or its ids when it was not made of bytes. At most `limit`
// tokens.
std::string text_of(const IndexedDataset& data, int64_t document, bool ids, int64_t limit) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(limit, data.document_tokens(document))));
  data.read(document, 0, static_cast<int64_t>(tokens.size()), tokens.data());
  const ByteTokenizer bytes;
  const bool foreign = std::any_of(tokens.begin(), tokens.end(),
                                   [&](int32_t id) { return id < 0 || id >= bytes.vocab(); });
  if (ids || foreign) return fmt::format("{}", fmt::join(tokens, " "));
  StreamDecoder decoder(bytes);
  std::string text;
  for (const int32_t id : tokens) text += decoder.push(id);
  return text + decoder.finish();
}

void print_statistics(const IndexedDataset& data) {
  std::vector<int64_t> lengths(static_cast<size_t>(data.documents()));
  for (int64_t d = 0; d < data.documents(); ++d) {
    lengths[static_cast<size_t>(d)] = data.document_tokens(d);
  }
  std::sort(lengths.begin(), lengths.end());
  fmt::print("{}\n", data.prefix());
  fmt::print("  documents  {}\n", grouped(data.documents()));
  fmt::print("  sequences  {}\n", grouped(data.sequences()));
  fmt::print("  tokens     {} as {}\n", grouped(data.tokens()), name_of(data.type()));
  if (!lengths.empty()) {
    fmt::print("  length     min {}, median {}, mean {}, max {} tokens per document\n",
               grouped(lengths.front()), grouped(lengths[lengths.size() / 2]),
               grouped(data.tokens() / data.documents()), grouped(lengths.back()));
  }
  fmt::print("  hash       {} (bin), {} (idx)\n", content_hash(data.bin_path()),
             content_hash(data.idx_path()));
}

void inspect(const Inspect& options) {
  const IndexedDataset data(options.path);
  if (options.document >= data.documents()) {
    throw ConfigError("--document {}: {} has documents 0 to {}", options.document, data.prefix(),
                      data.documents() - 1);
  }
  if (options.document >= 0) {
    fmt::print("{}\n", text_of(data, options.document, options.ids, data.tokens()));
    return;
  }
  print_statistics(data);
  for (int64_t d = 0; d < std::min<int64_t>(3, data.documents()); ++d) {
    std::string start = text_of(data, d, options.ids, 72);
    std::replace(start.begin(), start.end(), '\n', ' ');
    fmt::print("  document {}: {}\n", d, start);
  }
}

void check(const std::string& path, int64_t vocab) {
  const auto start = std::chrono::steady_clock::now();
  const IndexedDataset data(path);  // checks the index
  data.check_tokens(vocab > 0 ? vocab : int64_t{1} << 31);
  int64_t empty = 0;
  for (int64_t d = 0; d < data.documents(); ++d) empty += data.document_tokens(d) == 0 ? 1 : 0;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{}: sound, {} tokens in {} documents, {} in {:.2f} s\n", data.prefix(),
             grouped(data.tokens()), grouped(data.documents()),
             vocab > 0 ? fmt::format("all ids below {}", vocab) : "all ids between 0 and 2^31",
             seconds.count());
  if (empty > 0) fmt::print("note: {} documents are empty\n", grouped(empty));
  if (data.unused_bytes() > 0) {
    fmt::print("note: {} bytes of {} belong to no sequence\n", grouped(data.unused_bytes()),
               data.bin_path());
  }
}

void build(const DataBuild& options) {
  const auto start = std::chrono::steady_clock::now();
  const DataBuilt built = build_dataset(options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double mb = static_cast<double>(built.bytes) / 1e6;
  fmt::print(
      "{}.bin: {} tokens in {} documents from {} files, {:.1f} MB of text in {:.1f} s "
      "({:.0f} MB/s)\n",
      options.out, grouped(built.tokens), grouped(built.documents), grouped(built.files), mb,
      seconds.count(), mb / std::max(1e-9, seconds.count()));
  if (built.not_text > 0)
    fmt::print("skipped {} that are not UTF-8 text\n", grouped(built.not_text));
  if (built.empty > 0) fmt::print("skipped {} without text\n", grouped(built.empty));
}

void add_build(CLI::App& data) {
  CLI::App* app = data.add_subcommand("build", "Text or JSONL to .bin/.idx, one token per byte");
  app->footer(
      "Example:\n  weft data build --out corpus --strip roff --max-bytes 20MB --shuffle 1 "
      "/usr/share/man/man1\n"
      "writes corpus.bin, corpus.idx and corpus.tokenizer.json (vocabulary 257: 256 bytes and the\n"
      "end of a document). Files may be compressed with gzip; links inside folders are skipped.");
  auto options = std::make_shared<DataBuild>();
  app->add_option("inputs", options->inputs, "Files and folders")->required();
  app->add_option("--out", options->out, "Prefix of the files to write")->required();
  app->add_flag("--jsonl", options->jsonl, "Inputs have one JSON object per line");
  app->add_option("--key", options->key, "Where the text stands in those objects")
      ->capture_default_str();
  const std::map<std::string, DataBuild::Document> documents = {
      {"file", DataBuild::Document::kFile},
      {"line", DataBuild::Document::kLine},
      {"paragraph", DataBuild::Document::kParagraph}};
  app->add_option("--document", options->document, "What a document is: file, line or paragraph")
      ->transform(CLI::CheckedTransformer(documents).description(""))
      ->default_str("file");
  const std::map<std::string, DataBuild::Strip> strips = {{"roff", DataBuild::Strip::kRoff}};
  app->add_option("--strip", options->strip, "roff: keep only the text of manual pages")
      ->transform(CLI::CheckedTransformer(strips).description(""));
  app->add_option("--max-bytes", options->max_bytes, "Stop after so much text, e.g. 20MB")
      ->transform(CLI::AsSizeValue(true));
  app->add_option("--shuffle", options->shuffle,
                  "Take the files in a random order of this seed, so that --max-bytes cuts fairly")
      ->check(CLI::NonNegativeNumber);
  app->add_flag("--force", options->force, "Overwrite");
  app->callback([options] { build(*options); });
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Build, look into and check datasets");
  data->require_subcommand(1);
  data->footer("Example: weft data build --out corpus notes.txt && weft data inspect corpus");
  add_build(*data);

  CLI::App* looks =
      data->add_subcommand("inspect", "Statistics of a dataset, and its documents as text");
  looks->footer("Example:\n  weft data inspect corpus --document 7");
  auto inspected = std::make_shared<Inspect>();
  looks->add_option("dataset", inspected->path, "Prefix, .bin or .idx")->required();
  looks->add_option("--document", inspected->document, "Print this one completely")
      ->check(CLI::NonNegativeNumber);
  looks->add_flag("--ids", inspected->ids, "Token ids instead of text");
  looks->callback([inspected] { inspect(*inspected); });

  CLI::App* checks =
      data->add_subcommand("check", "Validate index and tokens of a dataset completely");
  checks->footer("Example:\n  weft data check corpus --vocab 257");
  auto path = std::make_shared<std::string>();
  auto vocab = std::make_shared<int64_t>(0);
  checks->add_option("dataset", *path, "Prefix, .bin or .idx")->required();
  checks->add_option("--vocab", *vocab, "Refuse ids that are not below this")
      ->check(CLI::PositiveNumber);
  checks->callback([path, vocab] { check(*path, *vocab); });
}

}  // namespace weft
