#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/run_config.h"
#include "tests/support/paths.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

const fs::path kConfigs = test::in_project("configs");

TEST(Configs, EveryFileParsesAndIsValid) {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    EXPECT_NO_THROW(load_config(entry.path().string())) << entry.path();
  }
  EXPECT_GE(count, 6);
}

TEST(Resolved, ReadsBackTheSame) {
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".toml") continue;
    const std::vector<std::string> overrides = {
        "optimizer.lr=0.30000000000000004", "run.dir=\"a \\\"quoted\\\"\\n\\u0001 name\"",
        "data.train=[[0.1, \"a\"], \"b\"]", "optimizer.eps=1e-300",
        "train.seed=9007199254740993",      "optimizer.min_lr=0"};
    const Config config = load_config(entry.path().string(), overrides);
    const std::string text = resolved(config);
    const Config again = config_from_text(text, "resolved");
    EXPECT_EQ(resolved(again), text);
    EXPECT_EQ(again.optimizer.lr, 0.30000000000000004);
    EXPECT_EQ(again.train.seed, 9007199254740993);
    EXPECT_EQ(again.run.dir, "a \"quoted\"\n\x01 name");
    EXPECT_EQ(again.data.train, config.data.train);
    for (const auto& [letter, layer] : config.model.letters) {
      EXPECT_EQ(again.model.letters.at(letter).options, layer.options);
    }
  }
}

TEST(Resolved, CarriesListsOfThousandsOfFiles) {
  Config config = load_config((kConfigs / "tiny.toml").string());
  config.data.train.assign(5000, {0.5, "shard.bin"});
  EXPECT_EQ(config_from_text(resolved(config), "resolved").data.train, config.data.train);
}

TEST(Resolved, HoldsEveryKey) {
  const std::string text = resolved(load_config((kConfigs / "tiny.toml").string()));
  for (const FieldInfo& info : describe<Config>()) {
    if (info.type == "options") continue;
    const std::string key = info.name.substr(info.name.rfind('.') + 1);
    EXPECT_NE(text.find("\n" + key + " = "), std::string::npos) << info.name;
  }
}

TEST(LoadConfig, NamesTheNearestFileWhenThereIsNone) {
  try {
    load_config((kConfigs / "tinny.toml").string());
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("nearest: 'tiny.toml'"), std::string::npos) << e.what();
  }
  EXPECT_THROW(load_config(kConfigs.string()), ConfigError);
  EXPECT_THROW(load_config(""), ConfigError);
}

TEST(LoadConfig, RefusesFilesThatAreNoConfigs) {
  const fs::path path = fs::path(testing::TempDir()) / "large.toml";
  std::ofstream(path) << "# " << std::string(2 << 20, 'x');
  EXPECT_THROW(load_config(path.string()), ConfigError);
  fs::remove(path);
}

TEST(Explain, GivesTypeDefaultRuleAndMeaning) {
  EXPECT_EQ(explain("optimizer.schedule"),
            "optimizer.schedule\n  shape of the learning rate after warmup\n"
            "  type: string, one of \"cosine\", \"wsd\", \"constant\"\n  default: \"cosine\"\n");
  EXPECT_EQ(explain("model.layer.L.mixer"), explain("model.layer.X.mixer"));
  EXPECT_NE(explain("model.layer.L.heads").find("weft info --mixers"), std::string::npos);
  EXPECT_NE(explain("train").find("train.steps"), std::string::npos);
  EXPECT_NE(explain("all").find("run.resume"), std::string::npos);
}

TEST(Explain, NamesTheNearestKey) {
  const auto message = [](const std::string& key) -> std::string {
    try {
      return explain(key);
    } catch (const ConfigError& e) {
      return e.what();
    }
  };
  EXPECT_EQ(message("train.step"), "there is no key 'train.step'; nearest: 'train.steps'");
  EXPECT_EQ(message("clip"), "there is no key 'clip'; nearest: 'optimizer.clip'");
}

TEST(Pattern, RepeatsToFillTheLayers) {
  const Config c = load_config((kConfigs / "hybrid-bla.toml").string());
  std::string letters;
  for (int64_t i = 0; i < 7; ++i) letters += layer_letter_of(c.model, i);
  EXPECT_EQ(letters, "DLNDLND");
  EXPECT_EQ(layer_config_of(c.model, 3).ffn, "dense");
}

TEST(DenseWidth, IsEightThirdsRoundedUpTo64) {
  ModelConfig model;
  model.hidden = 1024;
  EXPECT_EQ(dense_width(model), 2752);  // 2730.67
  model.hidden = 24;
  EXPECT_EQ(dense_width(model), 64);  // exactly 64
  model.hidden = 25;
  EXPECT_EQ(dense_width(model), 128);
  model.dense.ffn = 7;
  EXPECT_EQ(dense_width(model), 7);
}

}  // namespace
}  // namespace weft
