// A tokenizer from text to generated text: build, train on a blend, generate, as a user does.
#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "core/data/tokenizer.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
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

// Sets of a table by their names, files of a list by theirs; the mean is by weight.
TEST(TokenizerRun, MeasuresEachValidationSet) {
  const ScratchFolder folder;
  for (const char* name : {"a", "b", "c"}) build(folder, name, "llama3.json");
  const auto last_of = [&](const std::string& valid, const char* run) {
    const Outcome o = run_weft(training(folder, {"run.dir=" + (folder / run), valid}));
    EXPECT_EQ(o.code, 0) << o.err;
    std::istringstream lines(get_file(folder / run + "/metrics.jsonl"));
    json last;
    for (std::string line; std::getline(lines, line);) last = json::parse(line);
    return last;
  };
  const json list =
      last_of(fmt::format(R"(data.valid=["{}", [3, "{}"]])", folder / "b", folder / "c"), "list");
  const double b = list["valid_losses"]["b"], c = list["valid_losses"]["c"];
  EXPECT_EQ(list["valid_losses"].size(), 2u);
  EXPECT_NEAR(list["valid_loss"].get<double>(), (b + 3 * c) / 4, 1e-6);
  const json table = last_of(fmt::format(R"(data.valid={{web="{}", all=["{}", "{}"]}})",
                                         folder / "b", folder / "b", folder / "c"),
                             "table");
  EXPECT_EQ(table["valid_losses"]["web"], b);
  EXPECT_TRUE(table["valid_losses"].contains("all"));
}

TEST(TokenizerRun, GoesFromTextToGeneratedText) {
  const ScratchFolder folder;
  build(folder, "a", "llama3.json");
  build(folder, "b", "llama3.json");
  // Validation data without eval_every is used at least at the end.
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
  // The tokenizer is saved with the model.
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

// The tokenizer is a part of the checkpoint: hashed, verified and copied with the model.
TEST(TokenizerRun, TheTokenizerIsAPartOfTheCheckpoint) {
  const ScratchFolder folder;
  build(folder, "a", "llama3.json");
  const std::string only_a = "data.train=[\"" + (folder / "a") + "\"]";
  Outcome o = run_weft(training(folder, {only_a, "train.steps=2", "run.checkpoint_every=1"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string newest = folder / "run/checkpoints/step-000000002";
  const std::string words = get_file(golden("llama3.json"));
  EXPECT_TRUE(others_of(read_checkpoint(newest)).at("tokenizer.json") == words);
  ASSERT_EQ(run_weft({"checkpoint", "reshard", folder / "run", folder / "one"}).code, 0);
  EXPECT_TRUE(others_of(open_checkpoint(folder / "one")).at("tokenizer.json") == words);
  const auto generate = [&](const std::string& from) {
    return run_weft(
        {"generate", "--checkpoint", from, "--prompt", "number", "--tokens", "1", "--endless"});
  };
  // No other tokenizer is available; a vocabulary of 420 admits bytes, which would give wrong text.
  std::filesystem::rename(folder / "one/checkpoints/step-000000002", folder / "alone");
  const Outcome with = generate(newest);
  std::filesystem::remove(folder / "run/tokenizer.json");
  EXPECT_EQ(generate(folder / "alone").out, with.out);

  put_file(newest + "/tokenizer.json", words.substr(1));
  o = run_weft({"checkpoint", "verify", folder / "run"});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.out.find("step-000000002: DAMAGED: " + newest + "/tokenizer.json: has "),
            std::string::npos)
      << o.out;
  o = generate(folder / "run");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find(newest + "/tokenizer.json"), std::string::npos) << o.err;
  EXPECT_EQ(run_weft({"checkpoint", "reshard", newest, folder / "two"}).code, 2);
  // The continued run uses the saved tokenizer too.
  o = run_weft(training(folder, {only_a, "train.steps=3"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE((o.out + o.err).find("after step 1"), std::string::npos) << o.out << o.err;
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
