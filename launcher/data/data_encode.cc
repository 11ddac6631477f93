#include <iostream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/data/tokenizer.h"
#include "launcher/data/data_commands.h"
#include "launcher/data/tokenizer_files.h"

namespace weft {
namespace {

struct EncodeOptions {
  std::string tokenizer, pattern;
  bool decode = false, special = false;
};

nlohmann::json answer(const Tokenizer& tokenizer, const EncodeOptions& o,
                      const nlohmann::json& line, int64_t number) {
  if (o.decode) {
    if (!line.is_array()) throw ConfigError("line {}: a JSON array of ids is expected", number);
    std::vector<int32_t> ids;
    for (const auto& id : line) {
      if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab()) {
        throw ConfigError("line {}: {} is no id of a vocabulary of {}", number, id.dump(),
                          tokenizer.vocab());
      }
      ids.push_back(id.get<int32_t>());
    }
    return tokenizer.decode(ids);
  }
  if (!line.is_string()) throw ConfigError("line {}: a JSON string is expected", number);
  std::vector<int32_t> ids = o.special ? tokenizer.encode_prompt(line.get<std::string>())
                                       : tokenizer.encode(line.get<std::string>());
  if (o.special)
    ids.insert(ids.end(), tokenizer.behind_text().begin(), tokenizer.behind_text().end());
  return ids;
}

void encode(const EncodeOptions& o) {
  const std::unique_ptr<Tokenizer> tokenizer = load_for_text(o.tokenizer, o.pattern);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) throw ConfigError("line {}: not JSON", number);
    fmt::print("{}\n", answer(*tokenizer, o, json, number).dump());
  }
}

}  // namespace

void add_data_encode(CLI::App& data) {
  CLI::App* app = data.add_subcommand("encode", "What a tokenizer makes of texts, and back");
  app->footer(
      "Reads JSON strings, a line each, and prints their "
      "ids as JSON arrays; --decode the other way.\n"
      "Example:\n"
      "  echo '\"Hello, world\"' | weft data encode --tokenizer tokenizer.json");
  auto o = std::make_shared<EncodeOptions>();
  app->add_option("--tokenizer", o->tokenizer, "A tokenizer.json, .model or rank file")->required();
  add_pattern_option(*app, o->pattern);
  app->add_flag("--decode", o->decode, "Lines are arrays of ids; prints texts");
  app->add_flag("--special", o->special, "With what the tokenizer's template puts around a text");
  app->callback([o] { encode(*o); });
}

}  // namespace weft
