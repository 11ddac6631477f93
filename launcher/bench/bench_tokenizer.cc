#include "core/base/error.h"
#include "core/data/tokenizer.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/data/data_commands.h"

namespace weft {
namespace {

struct TokenizerBench {
  TextInputs from;
  std::string tokenizer, json;
  int64_t max_bytes = 32 << 20;
  int repetitions = 5;
  double least = 0;  // MB/s; 0: any
};

std::vector<std::string> texts_of(const TokenizerBench& o, int64_t& bytes) {
  DocumentReader reader(o.from, files_of(o.from));
  std::vector<std::string> texts;
  while (bytes < o.max_bytes) {
    auto document = reader.next();
    if (!document) break;
    const std::string& file = reader.files()[document->file];
    std::string text;
    if (text_of(o.from, file, std::move(*document), text) != Verdict::kText) continue;
    bytes += std::ssize(text);
    texts.push_back(std::move(text));
  }
  if (texts.empty()) throw ConfigError("no text in the inputs");
  return texts;
}

void bench(const TokenizerBench& o) {
  check_inputs(o.from);
  std::unique_ptr<Tokenizer> tokenizer = std::make_unique<ByteTokenizer>();
  if (!o.tokenizer.empty()) tokenizer = load_tokenizer(o.tokenizer, "", EndOfDocument::kOptional);
  int64_t bytes = 0, tokens = 0;
  const std::vector<std::string> texts = texts_of(o, bytes);
  std::vector<double> rates;
  for (int i = 0; i < o.repetitions; ++i) {
    tokens = 0;
    const double seconds = seconds_of(
        [&] {
          for (const std::string& text : texts) tokens += std::ssize(tokenizer->encode(text));
        },
        Clock::kProcessor);
    rates.push_back(static_cast<double>(bytes) / seconds / 1e6);
  }
  const Quartiles rate = quartiles(std::move(rates));
  fmt::print(
      "{:.1f} MB/s on one core (quartiles {:.1f} to {:.1f}), "
      "{:.1f} MB of text in {} documents, {:.2f} bytes per token\n",
      rate.median, rate.q1, rate.q3, static_cast<double>(bytes) / 1e6, texts.size(),
      static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, tokens)));
  if (!o.json.empty()) {
    write_json(o.json, {{"mb_per_s", to_json(rate)},
                        {"bytes", bytes},
                        {"documents", texts.size()},
                        {"tokens", tokens}});
  }
  if (rate.median >= o.least) return;
  fmt::print("FAIL: below {} MB/s\n", o.least);
  throw CLI::RuntimeError(1);
}

}  // namespace

void add_bench_tokenizer(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenizer", "Speed of encoding text, on one core");
  command->footer(
      "Example: weft bench tokenizer --tokenizer tokenizer.json --strip roff /usr/share/man/man1\n"
      "Processor time, so that other work on the machine does not count.\n"
      "--check fails below the rate expected of one core (10 MB/s).\n"
      "JSON: mb_per_s (median, q1, q3, repetitions), bytes, documents, tokens.");
  auto o = std::make_shared<TokenizerBench>();
  add_text_options(*command, o->from, o->max_bytes);
  command->add_option("--tokenizer", o->tokenizer, "A tokenizer.json; default: bytes");
  command->add_option("--repetitions", o->repetitions, "")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", o->json, "Writes the result to this file");
  command->add_option("--check", o->least, "Exit code 1 below this many MB/s (default 10)")
      ->expected(0, 1)
      ->default_str("10")
      ->check(CLI::PositiveNumber);
  command->callback([o] { bench(*o); });
}

}  // namespace weft
