#include <chrono>
#include <map>

#include "core/base/error.h"
#include "launcher/data/data_build.h"
#include "launcher/data/data_commands.h"

namespace weft {
namespace {

void build(const DataBuild& options) {
  const auto start = std::chrono::steady_clock::now();
  const DataBuilt built = build_dataset(options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double mb = static_cast<double>(built.bytes) / 1e6;
  fmt::print(
      "{}.bin: {} tokens in {} documents from {} files, "
      "{:.1f} MB of text in {:.1f} s ({:.0f} MB/s)\n",
      options.out, grouped(built.tokens), grouped(built.documents), grouped(built.files), mb,
      seconds.count(), mb / std::max(1e-9, seconds.count()));
  if (built.resumed > 0) {
    fmt::print("went on after {} documents of an earlier start\n", grouped(built.resumed));
  }
  if (built.started_over)
    fmt::print("started over: an earlier start had other inputs or options\n");
  if (built.not_text > 0)
    fmt::print("skipped {} that are not UTF-8 text, the first in {}\n", grouped(built.not_text),
               built.not_text_in);
  if (built.empty > 0) fmt::print("skipped {} without text\n", grouped(built.empty));
}

}  // namespace

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

void add_text_options(CLI::App& app, TextInputs& inputs, int64_t& max_bytes) {
  app.add_option("inputs", inputs.inputs, "Files and folders")->required();
  app.add_flag("--jsonl", inputs.jsonl, "Text files have one JSON object per line");
  app.add_option("--key", inputs.key,
                 "Where the text stands in those objects; the column of Parquet files")
      ->capture_default_str();
  const std::map<std::string, TextInputs::Document> documents = {
      {"file", TextInputs::Document::kFile},
      {"line", TextInputs::Document::kLine},
      {"paragraph", TextInputs::Document::kParagraph}};
  app.add_option("--document", inputs.document, "What a document is: file, line or paragraph")
      ->transform(CLI::CheckedTransformer(documents).description(""))
      ->default_str("file");
  const std::map<std::string, TextInputs::Strip> strips = {{"roff", TextInputs::Strip::kRoff}};
  app.add_option("--strip", inputs.strip, "roff: keep only the text of manual pages")
      ->transform(CLI::CheckedTransformer(strips).description(""));
  app.add_option("--max-bytes", max_bytes, "Stop after so much text, e.g. 20MB")
      ->transform(CLI::AsSizeValue(true));
  app.add_option("--shuffle", inputs.shuffle,
                 "Take the files in a random order of this seed, so that --max-bytes cuts fairly")
      ->check(CLI::NonNegativeNumber);
}

void add_pattern_option(CLI::App& app, std::string& pattern) {
  app.add_option(
      "--pattern", pattern,
      "How a rank file of tiktoken cuts text into words: gpt2, llama3, qwen2, o200k or a "
      "regular expression");
}

void add_data_build(CLI::App& data) {
  CLI::App* app = data.add_subcommand("build", "Text, JSONL or Parquet to .bin/.idx");
  app->footer(
      "Example:\n"
      "  weft data build --out corpus --strip roff "
      "--max-bytes 20MB --shuffle 1 /usr/share/man/man1\n"
      "  weft data build --out web --tokenizer tokenizer.json --jsonl web-*.jsonl.zst\n"
      "  weft data build --out fine --tokenizer tokenizer.json --key text fineweb/*.parquet\n"
      "  weft data build --out kimi --tokenizer tiktoken.model --pattern llama3 books.txt\n"
      "writes corpus.bin, corpus.idx and corpus.tokenizer.json (without --tokenizer a vocabulary\n"
      "of 257: 256 bytes and the end of a document). Text files may be packed with gzip or zstd;\n"
      "Parquet files are known by their content (columns of strings, or of lists of strings, each\n"
      "string a document). Links inside folders are skipped. A document has at most 256 MB.\n"
      "Stopped and started again it goes on (corpus.building holds what is done so far).");
  auto options = std::make_shared<DataBuild>();
  add_text_options(*app, options->from, options->max_bytes);
  app->add_option("--out", options->out, "Prefix of the files to write")->required();
  app->add_option(
      "--tokenizer", options->tokenizer,
      "A Hugging Face tokenizer.json (BPE, Unigram or WordPiece), a SentencePiece .model file or a "
      "rank file of tiktoken; default: bytes");
  add_pattern_option(*app, options->pattern);
  app->add_option("--eod", options->end_of_document,
                  "The token that ends a document; default: the usual one of the tokenizer");
  app->add_option("--threads", options->threads, "0: every core")->check(CLI::NonNegativeNumber);
  app->add_flag("--force", options->force, "Overwrite");
  app->callback([options] { build(*options); });
}

}  // namespace weft
