// A tokenizer from text to generated text: build, train on a blend, generate, as a user does.
#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "core/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

using nlohmann::json;

std::string golden(const std::string& name) {
  return in_project("tests/golden/tokenizers/" + name);
}

void build(const ScratchFolder& folder, const std::string& name, const std::string& tokenizer) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += fmt::format("{} number {} is followed by {}.\n", name, i, i + 1);
  put_file(folder / (name + ".txt"), text);
  const Outcome o = run_weft({"data", "build", "--document", "line", "--tokenizer",
                              golden(tokenizer), "--out", folder / name, folder / (name + ".txt")});
  ASSERT_EQ(o.code, 0) << o.err;
}

std::vector<std::string> training(const ScratchFolder& folder,
                                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "train",
      in_project("configs/tiny.toml"),
      "model.vocab=420",
      fmt::format("data.train=[[0.75, \"{}\"], [0.25, \"{}\"]]", folder / "a", folder / "b"),
      "run.dir=" + (folder / "run"),
      "train.steps=3",
      "optimizer.warmup=1",
      "train.sequence=32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(TokenizerRun, GoesFromTextToGeneratedText) {
  const ScratchFolder folder;
  build(folder, "a", "llama3.json");
  build(folder, "b", "llama3.json");
  // Validation data without eval_every is used all the same: at least at the end.
  const Outcome o = run_weft(training(folder, {"data.valid=[\"" + (folder / "b") + "\"]"}));
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(get_file(folder / "run/metrics.jsonl"));
  json last;
  for (std::string line; std::getline(lines, line);) last = json::parse(line);
  EXPECT_TRUE(last.contains("valid_loss"));
  const json& sources = last["sources"];
  ASSERT_EQ(sources.size(), 2u);
  int64_t samples = 0;
  for (const auto& [name, use] : sources.items()) {
    EXPECT_TRUE(name == folder / "a" || name == folder / "b");
    samples += use["samples"].get<int64_t>();
    EXPECT_GT(use["epochs"].get<double>(), 0.0);
  }
  EXPECT_EQ(samples * 32, last["tokens"].get<int64_t>());
  // The tokenizer goes with the model.
  const std::string tokenizer = get_file(golden("llama3.json"));
  EXPECT_EQ(get_file(folder / "run/tokenizer.json"), tokenizer);
  const json record = json::parse(get_file(folder / "run/run.json"));
  EXPECT_TRUE(record["data"].contains(folder / "a.tokenizer.json"));
  std::filesystem::remove(folder / "a.tokenizer.json");
  const Outcome g =
      run_weft({"generate", "--checkpoint", folder / "run", "--prompt", "number 1 is caf\u00e9",
                "--tokens", "8", "--endless", "--json", folder / "g.json"});
  ASSERT_EQ(g.code, 0) << g.err;
  EXPECT_NE(g.out.find("number 1 is caf\u00e9"), std::string::npos);
  EXPECT_EQ(json::parse(get_file(folder / "g.json"))["tokens"], 8);
}

TEST(TokenizerRun, RefusesTokenizersThatDoNotFit) {
  const ScratchFolder folder;
  build(folder, "a", "llama3.json");
  build(folder, "b", "gpt2.json");
  Outcome o = run_weft(training(folder));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("was made with another tokenizer"), std::string::npos) << o.err;
  o = run_weft(training(folder, {"data.train=[\"" + (folder / "a") + "\"]", "model.vocab=400"}));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("has 420 ids, model.vocab = 400 holds fewer"), std::string::npos) << o.err;
  o = run_weft(training(folder, {"data.tokenizer=" + (folder / "absent.json")}));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("absent.json does not exist"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft::test
