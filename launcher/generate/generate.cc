#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/utf8.h"
#include "core/data/tokenizer.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/data/tokenizer_files.h"
#include "launcher/generate/generator.h"
#include "launcher/generate/model_ranks.h"
#include "parallel/layout/launch.h"

namespace weft {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::string file, json, tokenizer;
  std::vector<std::string> prompts, stops;
  Sampling sampling{.temperature = 0.8};
  int64_t tokens = 128;
  bool interactive = false, endless = false;
};

void check_prompt(const std::string& prompt, const std::string& where) {
  if (prompt.empty())
    throw ConfigError("{}: is empty; a model continues text, give at least one character", where);
  std::string_view rest = prompt;
  while (!rest.empty()) {
    const int length = utf8_length(rest);
    if (length <= 0) {
      throw ConfigError("{}: byte {} (0x{:02x}) is not UTF-8; convert the text first", where,
                        rest.data() - prompt.data(), static_cast<unsigned char>(rest[0]));
    }
    rest.remove_prefix(static_cast<size_t>(length));
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("--file {}: cannot be read", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Output of one sequence: text so far, cut at a stop string.
struct Continuation {
  explicit Continuation(const Tokenizer& tokenizer) : stream(tokenizer) {}
  StreamDecoder stream;
  std::string text;
  size_t shown = 0;
  int64_t tokens = 0;
};

// Every rank decodes, and all take the same decision to end a text; rank 0 shows it.
class Session {
 public:
  Session(const GenerateOptions& o, ModelHere& here)
      : o_(o),
        here_(here),
        tokenizer_(tokenizer_of_checkpoint(here.found, here.model.config(), o.tokenizer)) {}

  // Continues all prompts in a batch; streams the text if there is only one.
  nlohmann::json run(const std::vector<std::string>& prompts) {
    std::vector<std::vector<int32_t>> ids;
    int64_t given = 0;
    for (const std::string& prompt : prompts) {
      ids.push_back(tokenizer_->encode_prompt(prompt));
      if (ids.back().empty()) {
        throw ConfigError("a prompt of {} bytes: the tokenizer produced no tokens", prompt.size());
      }
      given += static_cast<int64_t>(ids.back().size());
    }
    const bool live = prompts.size() == 1;
    if (live) show(prompts[0]);
    const double start = now(Clock::kWall);
    Generator generator(exec(), here_.model, o_.sampling, ids);
    const double prefilled = now(Clock::kWall);
    std::vector<Continuation> out(prompts.size(), Continuation(*tokenizer_));
    while (!generator.done()) {
      const std::vector<int32_t> tokens = generator.next();
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= 0 && take(out[i], tokens[i])) generator.stop(i);
      }
      if (live) show_new(out[0], false);
    }
    const double seconds = now(Clock::kWall) - prefilled;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!live) show(fmt::format("[{}] {}", i, prompts[i]));
      show_new(out[i], true);
      show("\n");
    }
    return report(prompts, out, generator, given / (prefilled - start), seconds);
  }

 private:
  Exec& exec() { return here_.runtime.exec(); }

  // True when the sequence ends with this token.
  bool take(Continuation& c, int32_t token) {
    ++c.tokens;
    if (token == tokenizer_->end_of_document() && !o_.endless) {
      c.text += c.stream.finish();
      return true;
    }
    c.text += token < tokenizer_->vocab() ? c.stream.push(token) : "";
    for (const std::string& stop : o_.stops) {
      const size_t from =
          c.text.size() > 2 * stop.size() + 8 ? c.text.size() - 2 * stop.size() - 8 : 0;
      const size_t at = c.text.find(stop, from);
      if (at == std::string::npos) continue;
      c.text.resize(at);
      return true;
    }
    if (c.tokens < o_.tokens) return false;
    c.text += c.stream.finish();
    return true;
  }

  // Text that may become part of a stop string is held back.
  void show_new(Continuation& c, bool last) {
    size_t hold = 0;
    for (const std::string& stop : o_.stops) hold = std::max(hold, stop.size() - 1);
    const size_t end =
        last || c.text.size() < hold ? (last ? c.text.size() : 0) : c.text.size() - hold;
    if (end <= c.shown) return;
    show(std::string_view(c.text).substr(c.shown, end - c.shown));
    c.shown = end;
  }
  void show(std::string_view text) const {
    if (!here_.first()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  nlohmann::json report(const std::vector<std::string>& prompts,
                        const std::vector<Continuation>& out, const Generator& generator,
                        double prefill_rate, double seconds) {
    int64_t made = 0;
    nlohmann::json texts = nlohmann::json::array();
    for (const Continuation& c : out) {
      made += c.tokens;
      texts.push_back(c.text);
    }
    return {{"prompts", prompts},
            {"texts", texts},
            {"tokens", made},
            {"prefill_tokens_per_s", prefill_rate},
            {"tokens_per_s", static_cast<double>(made) / seconds},
            {"state_bytes", most(generator.state_bytes())},
            {"peak_bytes", most(here_.runtime.ledger().total().peak)},
            {"ranks", here_.mesh->size()},
            {"checkpoint", here_.found.path}};
  }

  // The largest value over all ranks.
  int64_t most(int64_t mine) { return here_.mesh->hosts().max(mine); }

  const GenerateOptions& o_;
  ModelHere& here_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// The next typed prompt; empty at the end of the input.
std::string typed_prompt() {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::string line;
  while (line.empty()) {
    if (terminal) fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return "";
  }
  check_prompt(line, "the line");
  return line;
}

// Only the first rank reads files and the terminal, which others may not have.
std::vector<std::string> given_prompts(const GenerateOptions& o) {
  std::vector<std::string> prompts = o.prompts;
  for (const std::string& prompt : prompts) check_prompt(prompt, "--prompt");
  for (const std::string& stop : o.stops) {
    if (stop.empty()) throw ConfigError("--stop: is empty; omit it to disable stop strings");
  }
  if (!o.file.empty() && this_launch().rank == 0) {
    prompts.push_back(text_of(o.file));
    check_prompt(prompts.back(), "--file " + o.file);
  }
  if (prompts.empty() && o.file.empty() && !o.interactive) {
    throw ConfigError("nothing to continue: give --prompt TEXT, --file FILE or --interactive");
  }
  return prompts;
}

void generate(const GenerateOptions& o) {
  const std::vector<std::string> given = given_prompts(o);
  with_model(o.model, [&](ModelHere& here) {
    const auto of_first = [&](const std::string& text) {
      return here.mesh->hosts().text_of_first(text);
    };
    Session session(o, here);
    const std::vector<std::string> prompts =
        nlohmann::json::parse(of_first(nlohmann::json(given).dump()));
    if (!prompts.empty()) {
      const nlohmann::json result = session.run(prompts);
      if (!o.json.empty() && here.first()) write_json(o.json, result);
    }
    while (o.interactive) {
      const std::string line = of_first(here.first() ? typed_prompt() : "");
      if (line.empty()) return;
      session.run({line});
    }
  });
}

}  // namespace

void add_generate(CLI::App& app) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue text with a trained model");
  command->footer(
      "Example: weft generate --checkpoint runs/quickstart --prompt \"The file\" --tokens 200\n"
      "The text appears as it is decoded; several prompts "
      "are decoded in a batch. LSM layers carry a state of\n"
      "constant size, softmax layers the keys and values so far.\n"
      "Several ranks: launcher/run -n 4 build/weft generate --checkpoint "
      "runs/a --prompt \"The\" parallel.tensor=2 parallel.expert=4\n"
      "JSON: prompts, texts, tokens, prefill_tokens_per_s, tokens_per_s, "
      "state_bytes and peak_bytes (largest over ranks), ranks, checkpoint.");
  add_model_options(*command, o->model);
  command->add_option("--tokenizer", o->tokenizer,
                      "A tokenizer.json; default: the one saved with the checkpoint, else bytes");
  // One text each: following arguments belong to the layout.
  command->add_option("--prompt", o->prompts, "Text to continue; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--file", o->file, "A file with a prompt");
  command->add_flag("--interactive", o->interactive,
                    "Reads prompts from the terminal, a line each");
  command->add_option("--tokens", o->tokens, "Maximum number of new tokens")
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", o->sampling.temperature, "0: always the most probable token")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-k", o->sampling.top_k, "Only the k most probable tokens; 0: all")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--top-p", o->sampling.top_p,
                   "Only the smallest set of most probable tokens with this total probability")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--repetition-penalty", o->sampling.repetition_penalty,
                   "Above 1: repeated tokens become less likely")
      ->check(CLI::PositiveNumber);
  command->add_option("--stop", o->stops, "Ends a text before this string; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--endless", o->endless, "Continue after the end of a document");
  command->add_option("--seed", o->sampling.seed, "Seed of the sampling");
  command->add_option("--json", o->json, "Writes texts, tokens/s and memory to this file");
  command->callback([o] { generate(*o); });
}

}  // namespace weft
