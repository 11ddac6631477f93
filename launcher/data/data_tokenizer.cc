#include <chrono>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/data/tokenizer.h"
#include "core/data/tokenizer/bpe_trainer.h"
#include "core/files/new_file.h"
#include "core/threads/thread_pool.h"
#include "launcher/data/data_commands.h"
#include "launcher/data/text_progress.h"

namespace weft {
namespace {

struct TokenizerOptions {
  TextInputs from;
  std::string out;
  int64_t max_bytes = 0;
  int64_t vocab = 0, min_count = 2;
  WordPattern pattern = WordPattern::kLlama3;
  std::vector<std::string> special = {"<|endoftext|>"};
  int threads = 0;
  bool force = false;
};

struct Counted {
  WordCounts words;
  int64_t documents = 0, bytes = 0, left_out = 0;
};

// Documents are taken in groups, so that what is counted does not depend on the threads.
Counted count_words(const TokenizerOptions& o, ThreadPool& pool) {
  constexpr int64_t kGroup = 64 << 20;  // bytes
  const WordCounter counter(o.pattern);
  DocumentReader reader(o.from, files_of(o.from), pool.size());
  TextProgress progress;
  Counted all;
  std::vector<WordCounts> parts(static_cast<size_t>(pool.size()));
  for (bool enough = false; !enough;) {
    std::vector<std::string> texts;
    for (int64_t bytes = 0; bytes < kGroup && !enough;) {
      auto document = reader.next();
      if (!document) {
        enough = true;
        break;
      }
      const std::string& file = reader.files()[document->file];
      std::string text;
      if (text_of(o.from, file, std::move(*document), text) != Verdict::kText) {
        ++all.left_out;
        continue;
      }
      bytes += std::ssize(text);
      all.bytes += std::ssize(text);
      ++all.documents;
      texts.push_back(std::move(text));
      enough = o.max_bytes > 0 && all.bytes >= o.max_bytes;
    }
    pool.run_on(std::ssize(texts), [&](int64_t i, int thread) {
      counter.count(texts[static_cast<size_t>(i)], parts[static_cast<size_t>(thread)]);
    });
    progress.show(fmt::format("{} documents", all.documents), all.bytes);
  }
  for (WordCounts& part : parts) {
    for (const auto& [word, count] : part) all.words[word] += count;
    WordCounts().swap(part);
  }
  return all;
}

void check_options(const TokenizerOptions& o) {
  check_inputs(o.from);
  if (!o.force && std::filesystem::exists(o.out)) {
    throw ConfigError("{} exists; choose another --out, or overwrite it with --force", o.out);
  }
  for (size_t i = 0; i < o.special.size(); ++i) {
    const std::string& token = o.special[i];
    if (token.size() < 2)
      throw ConfigError("--special \"{}\": at least two characters, to be no byte", token);
    if (std::count(o.special.begin(), o.special.end(), token) > 1) {
      throw ConfigError("--special \"{}\": given twice", token);
    }
  }
  const int64_t least = std::ssize(o.special) + 256;
  if (o.vocab < least) {
    throw ConfigError("--vocab {}: 256 bytes and {} special tokens need at least {}", o.vocab,
                      o.special.size(), least);
  }
}

void train(const TokenizerOptions& o) {
  check_options(o);
  const auto start = std::chrono::steady_clock::now();
  ThreadPool pool(o.threads > 0 ? o.threads : available_cores());
  const Counted counted = count_words(o, pool);
  if (counted.words.empty())
    throw ConfigError("no text in the inputs ({} documents left out)", counted.left_out);
  TextProgress progress;
  const BpeVocabulary vocabulary =
      train_bpe(counted.words,
                {.vocab = o.vocab,
                 .first_id = std::ssize(o.special),
                 .min_count = o.min_count,
                 .progress =
                     [&](int64_t tokens, int64_t of) {
                       progress.show(fmt::format("{} of {} tokens", tokens, of), counted.bytes);
                     }},
                pool);
  const std::string json = byte_level_json(vocabulary, o.pattern, o.special);
  parse_tokenizer(json, o.out,
                  o.special.empty() ? "a" : o.special[0]);  // what cannot be read is not written
  NewFile file(o.out);
  file.write(json.data(), std::ssize(json));
  file.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{}: {} tokens from {:.1f} MB of text in {} documents, {} different words, {:.1f} s\n",
             o.out, grouped(std::ssize(vocabulary.tokens)),
             static_cast<double>(counted.bytes) / 1e6, grouped(counted.documents),
             grouped(std::ssize(counted.words)), seconds.count());
  if (std::ssize(vocabulary.tokens) < o.vocab) {
    fmt::print("fewer than --vocab {}: no other pair occurs {} times; more text gives more\n",
               o.vocab, o.min_count);
  }
  if (counted.left_out > 0) fmt::print("left out {} that are no text\n", grouped(counted.left_out));
}

}  // namespace

void add_data_tokenizer(CLI::App& data) {
  CLI::App* app = data.add_subcommand("tokenizer", "Train a byte-level BPE vocabulary");
  app->footer(
      "Example:\n"
      "  weft data tokenizer --vocab 8192 --out tokenizer.json --jsonl web.jsonl.zst\n"
      "  weft data build --out web --tokenizer tokenizer.json --jsonl web.jsonl.zst\n"
      "writes a tokenizer.json that Hugging Face's tokenizers "
      "open too. The same text gives the same file, with\n"
      "any number of threads.");
  auto o = std::make_shared<TokenizerOptions>();
  add_text_options(*app, o->from, o->max_bytes);
  app->add_option("--vocab", o->vocab, "Number of tokens, with the 256 bytes and the special ones")
      ->required();
  app->add_option("--out", o->out, "The tokenizer.json to write")->required();
  const std::map<std::string, WordPattern> patterns = {{"gpt2", WordPattern::kGpt2},
                                                       {"llama3", WordPattern::kLlama3},
                                                       {"qwen2", WordPattern::kQwen2}};
  app->add_option("--pattern", o->pattern, "How text is cut into words: gpt2, llama3 or qwen2")
      ->transform(CLI::CheckedTransformer(patterns).description(""))
      ->default_str("llama3");
  app->add_option("--special", o->special,
                  "Tokens that are no text, ids from 0; the first ends documents")
      ->capture_default_str();
  app->add_option("--min-count", o->min_count, "A pair that occurs less often is not merged")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--threads", o->threads, "0: every core")->check(CLI::NonNegativeNumber);
  app->add_flag("--force", o->force, "Overwrite");
  app->callback([o] { train(*o); });
}

}  // namespace weft
