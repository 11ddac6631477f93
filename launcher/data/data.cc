#include "launcher/data/data.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/dataset_pass.h"
#include "core/data/tokenizer.h"
#include "core/files/content_hash.h"
#include "launcher/data/data_commands.h"
#include "launcher/data/text_progress.h"
#include "launcher/data/tokenizer_files.h"

namespace weft {
namespace {

struct DatasetOptions {
  std::string path, tokenizer;
  int64_t document = -1;  // inspect
  bool ids = false;
  int64_t vocab = 0;  // check
};

// The tokenizer that was asked for, else the one beside the dataset, else bytes where all ids can
// be theirs; else none.
std::unique_ptr<Tokenizer> tokenizer_for(const IndexedDataset& data, const std::string& asked) {
  const std::string beside = tokenizer_beside(data.prefix());
  if (!asked.empty() || !beside.empty()) return load_for_text(asked.empty() ? beside : asked);
  if (data.find_token_beyond(ByteTokenizer().vocab())) return nullptr;
  return std::make_unique<ByteTokenizer>();
}

// A document's text for a terminal, or its ids. At most `limit` tokens.
std::string shown(const IndexedDataset& data, int64_t document, const Tokenizer* tokenizer,
                  int64_t limit) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(limit, data.document_tokens(document))));
  data.read(document, 0, static_cast<int64_t>(tokens.size()), tokens.data());
  if (tokenizer == nullptr) return fmt::format("{}", fmt::join(tokens, " "));
  return valid_utf8(tokenizer->decode(tokens));
}

// How many tokens of the vocabulary occur, and how much text one stands for.
void print_use(const IndexedDataset& data, const Tokenizer& tokenizer) {
  data.check_tokens(tokenizer.vocab());
  std::vector<int64_t> counts(static_cast<size_t>(tokenizer.vocab()));
  for (int64_t d = 0; d < data.documents(); ++d) {
    for (const int32_t id : data.read(d)) ++counts[static_cast<size_t>(id)];
  }
  int64_t used = 0, bytes = 0;
  std::string text;
  for (size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] == 0) continue;
    ++used;
    text.clear();
    tokenizer.append_bytes(static_cast<int32_t>(id), text);
    bytes += counts[id] * std::ssize(text);
  }
  const auto ends = tokenizer.end_of_document() < 0
                        ? 0
                        : counts[static_cast<size_t>(tokenizer.end_of_document())];
  fmt::print("  vocabulary {} ids, {} of them used; {} ends of documents\n",
             grouped(tokenizer.vocab()), grouped(used), grouped(ends));
  fmt::print("  text       {:.1f} MB, {:.2f} bytes per token\n", static_cast<double>(bytes) / 1e6,
             static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, data.tokens())));
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
    const double mean = static_cast<double>(data.tokens()) / static_cast<double>(data.documents());
    fmt::print("  length     min {}, median {}, mean {:.1f}, max {} tokens per document\n",
               grouped(lengths.front()), grouped(lengths[lengths.size() / 2]), mean,
               grouped(lengths.back()));
  }
  fmt::print("  hash       {} (bin), {} (idx)\n", content_hash(data.bin_path()),
             content_hash(data.idx_path()));
}

void inspect(const DatasetOptions& options) {
  const IndexedDataset data(options.path);
  if (options.document >= data.documents()) {
    throw ConfigError("--document {}: {} has documents 0 to {}", options.document, data.prefix(),
                      data.documents() - 1);
  }
  std::unique_ptr<Tokenizer> tokenizer;
  if (!options.ids) tokenizer = tokenizer_for(data, options.tokenizer);
  if (options.document >= 0) {
    fmt::print("{}\n", shown(data, options.document, tokenizer.get(), data.tokens()));
    return;
  }
  print_statistics(data);
  if (tokenizer) print_use(data, *tokenizer);
  for (int64_t d = 0; d < std::min<int64_t>(3, data.documents()); ++d) {
    std::string start = shown(data, d, tokenizer.get(), 72);
    std::replace(start.begin(), start.end(), '\n', ' ');
    fmt::print("  document {}: {}\n", d, start);
  }
}

DatasetHashes pass_over(const IndexedDataset& data, int64_t vocab) {
  ThreadPool threads(available_cores());
  TextProgress progress;
  const auto show = [&](int64_t bytes) { progress.show("checking " + data.prefix(), bytes); };
  return conclude(data, vocab, look_through(threads, data, vocab, 0, pass_blocks(data), show));
}

void check(const DatasetOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const IndexedDataset data(options.path);  // checks the index
  int64_t vocab = options.vocab;
  const std::string tokenizer =
      options.tokenizer.empty() ? tokenizer_beside(data.prefix()) : options.tokenizer;
  if (vocab == 0 && !tokenizer.empty()) vocab = load_for_text(tokenizer)->vocab();
  const DatasetHashes hashes = pass_over(data, vocab > 0 ? vocab : int64_t{1} << 31);
  int64_t empty = 0;
  for (int64_t d = 0; d < data.documents(); ++d) empty += data.document_tokens(d) == 0 ? 1 : 0;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{}: sound, {} tokens in {} documents, {} in {:.2f} s\n", data.prefix(),
             grouped(data.tokens()), grouped(data.documents()),
             vocab > 0 ? fmt::format("all ids below {}", vocab) : "all ids between 0 and 2^31",
             seconds.count());
  fmt::print("hash: {} (bin), {} (idx), as run.json has them\n", hashes.bin, hashes.idx);
  if (empty > 0) fmt::print("note: {} documents are empty\n", grouped(empty));
  if (data.unused_bytes() > 0) {
    fmt::print("note: {} bytes of {} belong to no sequence\n", grouped(data.unused_bytes()),
               data.bin_path());
  }
}

CLI::App* add_dataset_command(CLI::App& data, const char* name, const char* what,
                              DatasetOptions& options) {
  CLI::App* app = data.add_subcommand(name, what);
  app->add_option("dataset", options.path, "Prefix, .bin or .idx")->required();
  app->add_option(
      "--tokenizer", options.tokenizer,
      "The tokenizer.json it was made with; default: PREFIX.tokenizer.json, else bytes");
  return app;
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* data =
      app.add_subcommand("data", "Build, look into and check datasets; train tokenizers");
  data->require_subcommand(1);
  data->footer("Example: weft data build --out corpus notes.txt && weft data inspect corpus");
  add_data_build(*data);
  add_data_recall(*data);

  auto options = std::make_shared<DatasetOptions>();
  CLI::App* looks = add_dataset_command(
      *data, "inspect", "Statistics of a dataset, and its documents as text", *options);
  looks->footer("Example:\n  weft data inspect corpus --document 7");
  looks->add_option("--document", options->document, "Print this one completely")
      ->check(CLI::NonNegativeNumber);
  looks->add_flag("--ids", options->ids, "Token ids instead of text");
  looks->callback([options] { inspect(*options); });

  CLI::App* checks = add_dataset_command(
      *data, "check", "Validate index and tokens of a dataset completely", *options);
  checks->footer("Example:\n  weft data check corpus --vocab 257");
  checks
      ->add_option("--vocab", options->vocab,
                   "Refuse ids that are not below this; default: the tokenizer's")
      ->check(CLI::PositiveNumber);
  checks->callback([options] { check(*options); });
  add_data_tokenizer(*data);
  add_data_encode(*data);
}

}  // namespace weft
