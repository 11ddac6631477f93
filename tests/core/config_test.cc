#include "core/config/config.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/run_config.h"
#include "tests/support/scratch_folder.h"

namespace weft {
namespace {

constexpr char kSmall[] = R"([model]
layers = 5
pattern = "LLN"
[model.layer.L]
mixer = "retnet"
heads = 4
[model.layer.N]
heads = 8
rope = true
)";

// The message of the ConfigError of reading `text`.
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    config_from_text(text, "x.toml", overrides);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

std::string refusal_of_override(const std::string& text) { return refusal(kSmall, {text}); }

TEST(Config, ReadsWhatTheFileSaysAndKeepsDefaultsElsewhere) {
  const Config c = config_from_text(kSmall, "x.toml");
  EXPECT_EQ(c.model.layers, 5);
  EXPECT_EQ(c.model.vocab, 32000);
  EXPECT_EQ(c.model.letters.at('L').mixer, "retnet");
  EXPECT_EQ(c.model.letters.at('N').mixer, "softmax");
  EXPECT_TRUE(c.model.letters.at('N').options.has("rope"));
  EXPECT_EQ(c.where("model.layers"), "x.toml:2:1");
  EXPECT_EQ(c.where("train.steps"), "default");
}

TEST(Config, RefusesUnknownKeysWithTheNearestKnownOne) {
  const std::string small = kSmall;
  EXPECT_EQ(refusal(small + "[train]\nstep = 3\n"),
            "x.toml:11:1: [train] has no key 'step'; nearest: train.steps "
            "(weft train --explain all)");
  EXPECT_EQ(refusal(small + "[optimiser]\nlr = 3\n"),
            "x.toml:10:2: a config has no key 'optimiser'; nearest: optimizer "
            "(weft train --explain all)");
  EXPECT_EQ(refusal("steps = 3\n" + small),
            "x.toml:1:1: a config has no key 'steps'; nearest: train.steps "
            "(weft train --explain all)");
  EXPECT_NE(refusal(small + "[parallel]\nzebra = 3\n").find("known: tensor, pipe"),
            std::string::npos);
}

TEST(Config, RefusesWrongTypes) {
  const std::string small = kSmall;
  EXPECT_EQ(refusal(small + "[train]\nsteps = \"ten\"\n"),
            "x.toml:11:9: train.steps = \"ten\" is a string; it must be an integer of at least 1");
  EXPECT_EQ(refusal(small + "[train]\nsteps = 1e3\n"),
            "x.toml:11:9: train.steps = 1000.0 is a float; it must be an integer of at least 1; "
            "nearest: 1000");
  EXPECT_EQ(refusal(small + "[data]\npack = 1\n"),
            "x.toml:11:8: data.pack = 1 is an integer; it must be true or false");
  EXPECT_EQ(refusal(small + "[optimizer]\nlr = true\n"),
            "x.toml:11:6: optimizer.lr = true is true or false; it must be a number of at least 0");
  EXPECT_EQ(refusal("model = 3\n"),
            "x.toml:1:1: model is an integer; it must be a table: a line [model] with keys "
            "below it");
  EXPECT_NE(refusal(small + "[run]\ndir = 1979-05-27\n").find("x.toml:11:7: dates and times"),
            std::string::npos);
}

TEST(Config, RefusesValuesOutOfRangeWithTheNearestGoodOne) {
  EXPECT_EQ(refusal_of_override("train.steps=0"),
            "command line: train.steps = 0 is too small; it must be an integer of at least 1; "
            "nearest: 1");
  EXPECT_EQ(refusal_of_override("optimizer.decay=1.5"),
            "command line: optimizer.decay = 1.5 is too large; it must be a number from 0 to 1; "
            "nearest: 1.0");
  EXPECT_NE(refusal_of_override("optimizer.lr=nan").find("is not a finite number"),
            std::string::npos);
  EXPECT_NE(refusal_of_override("optimizer.lr=inf").find("is not a finite number"),
            std::string::npos);
  EXPECT_EQ(
      refusal_of_override("optimizer.eps=0"),
      "command line: optimizer.eps = 0 is too small; it must be a number above 0; default: 1e-08");
  EXPECT_NE(refusal_of_override("parallel.tensor=99999999999").find("too large"),
            std::string::npos);
  EXPECT_NE(refusal_of_override("train.steps=9223372036854775807").find("too large"),
            std::string::npos);
  EXPECT_NE(refusal_of_override("optimizer.betas=[0.9,1.0]").find("optimizer.betas[1] = 1.0"),
            std::string::npos);
  EXPECT_NE(refusal_of_override("optimizer.betas=[0.9]").find("has 1 entries"), std::string::npos);
}

TEST(Config, RefusesUnknownChoices) {
  EXPECT_EQ(refusal_of_override("optimizer.schedule=cosin"),
            "command line: optimizer.schedule = \"cosin\" is not known; it must be one of "
            "\"cosine\", \"wsd\", \"constant\"; nearest: \"cosine\"");
}

TEST(Config, RefusesPatternsWithUndefinedLetters) {
  EXPECT_EQ(refusal_of_override("model.pattern=LXN"),
            "command line: model.pattern = \"LXN\" uses the letter 'X', which has no table; add "
            "[model.layer.X] with a mixer (defined letters: L, N)");
  EXPECT_NE(refusal_of_override("model.pattern=").find("is empty"), std::string::npos);
  EXPECT_NE(refusal_of_override("model.pattern=L N").find("only letters"), std::string::npos);
  EXPECT_NE(refusal("").find("no letter is defined"), std::string::npos);
  EXPECT_NE(refusal_of_override("model.layer.LL.mixer=bla").find("named by one letter"),
            std::string::npos);
}

TEST(Config, RefusesDuplicatedKeysAndBrokenToml) {
  EXPECT_TRUE(refusal("[train]\nsteps = 1\nsteps = 2\n").starts_with("x.toml:3:"));
  EXPECT_TRUE(refusal("[train]\nsteps = \n").starts_with("x.toml:2:"));
  EXPECT_TRUE(refusal("[train\n").starts_with("x.toml:1:"));
  EXPECT_TRUE(refusal("a = \"\xff\"\n").starts_with("x.toml:1:"));
  EXPECT_TRUE(refusal("a = " + std::string(100000, '[')).starts_with("x.toml:1:"));
}

TEST(Config, SurvivesFilesMadeToBreakIt) {
  std::string dots;
  for (int i = 0; i < 100000; ++i) dots += "a.";
  EXPECT_NE(refusal(dots + "b = 1\n").find("dots on a line"), std::string::npos);
  EXPECT_NE(refusal("[" + dots + "b]\n").find("dots on a line"), std::string::npos);
  EXPECT_NE(refusal(dots.substr(0, 4000) + "b = 1\n").find("has no key 'a'"), std::string::npos);
  EXPECT_LT(refusal(std::string(100000, 'k') + " = 1\n").size(), 400u);
  EXPECT_LT(refusal("model.vocab = \"" + std::string(100000, 'k') + "\"\n").size(), 400u);
}

TEST(Config, RefusesCombinationsThatCannotWork) {
  EXPECT_EQ(refusal_of_override("train.micro_batch=5"),
            "command line: train.global_batch = 32 is not a multiple of train.micro_batch = 5; "
            "nearest: 30 or 35");
  EXPECT_EQ(refusal_of_override("model.moe.active=65"),
            "command line: model.moe.active = 65 is more than model.moe.experts = 64; a token "
            "visits an expert once; nearest: 64");
  EXPECT_NE(refusal_of_override("model.moe.n_group=7").find("does not divide"), std::string::npos);
  EXPECT_NE(refusal_of_override("parallel.expert=3").find("does not divide"), std::string::npos);
  EXPECT_NE(refusal_of_override("optimizer.min_lr=1").find("is above optimizer.lr"),
            std::string::npos);
  EXPECT_NE(refusal_of_override("run.dir=").find("is empty"), std::string::npos);
}

TEST(Config, RefusesRoutersThatCannotWork) {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& why) {
    const std::string message = refusal(kSmall, overrides);
    EXPECT_NE(message.find(why), std::string::npos) << overrides.back() << ": " << message;
  };
  refused({"model.moe.n_group=7"},
          "does not divide model.moe.experts = 64; groups have equal size; nearest: 4");
  refused({"model.moe.n_group=65"}, "64");
  refused({"model.moe.n_group=8", "model.moe.topk_group=9"},
          "is more than model.moe.n_group = 8; a token chooses from groups that exist; nearest: 8");
  refused(
      {"model.moe.n_group=16", "model.moe.topk_group=1"},
      "model.moe.active = 8 is more than the 4 experts of model.moe.topk_group = 1 groups of 4; "
      "nearest: 4, or model.moe.topk_group = 2");
  refused({"model.moe.route_scale=2.0"}, "nearest: 1.0");
  refused({"model.moe.shared_gate=true"}, "nearest: model.moe.shared = 1, or false");
  refused({"model.moe.drop_policy=probs"}, "nearest: model.moe.capacity = 1.25, or \"position\"");
  refused({"model.moe.router=sigmoid"}, "sigmoid_bias");
  refused({"model.moe.aux_scope=batch"}, "global_batch");
  refused({"model.moe.capacity=-1.0"}, "model.moe.capacity");
  refused({"model.moe.bias_rate=-1.0"}, "model.moe.bias_rate");
  for (const char* trace : {"x", "read:x", "write:", "replay", ":x"}) {
    refused({std::string("run.routing_trace=") + trace},
            "is not a verb and a file; nearest: \"write:");
  }
}

TEST(Config, RenormalizesSigmoidsUnlessToldOtherwise) {
  const auto renormalize = [](std::vector<std::string> overrides) {
    return config_from_text(kSmall, "x.toml", overrides).model.moe.renormalize;
  };
  EXPECT_FALSE(renormalize({}));
  EXPECT_TRUE(renormalize({"model.moe.router=sigmoid_bias"}));
  EXPECT_FALSE(renormalize({"model.moe.router=sigmoid_bias", "model.moe.renormalize=false"}));
}

TEST(Config, DoesNotAskForExpertsWhereThereAreNone) {
  const Config c = config_from_text(
      kSmall, "x.toml",
      {"model.layer.L.ffn=dense", "model.layer.N.ffn=none", "model.moe.active=65"});
  EXPECT_EQ(c.model.moe.active, 65);
}

TEST(Override, ReadsValuesAsTomlAndBareWordsAsStrings) {
  const Config c = config_from_text(
      kSmall, "x.toml",
      {"train.steps=200", "optimizer.lr=1", "optimizer.lr=2e-3", "run.dir=runs/a b", "run.init=7",
       "data.tokenizer=\"t.json\"", "data.pack=false", "data.valid=v.bin",
       R"(data.train=["a", [0.25, "b=c"]])", "optimizer.betas=[0.8, 0.9]"});
  EXPECT_EQ(c.train.steps, 200);
  EXPECT_EQ(c.optimizer.lr, 2e-3);  // the last one counts
  EXPECT_EQ(c.run.dir, "runs/a b");
  EXPECT_EQ(c.run.init, "7");
  EXPECT_EQ(c.data.tokenizer, "t.json");
  EXPECT_FALSE(c.data.pack);
  EXPECT_EQ(c.data.valid, (std::vector<DataSource>{{1.0, "v.bin", {}}}));
  EXPECT_EQ(c.data.train, (std::vector<DataSource>{{1.0, "a", {}}, {0.25, "b=c", {}}}));
  EXPECT_EQ(c.optimizer.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(c.where("train.steps"), "command line");
}

TEST(Config, ReadsNamedValidationSetsAndPrintsThem) {
  const Config c =
      config_from_text(kSmall, "x.toml", {R"(data.valid={web="b", all=["b", [2, "c"]]})"});
  EXPECT_EQ(c.data.valid,
            (std::vector<DataSource>{{1.0, "b", "web"}, {1.0, "b", "all"}, {2.0, "c", "all"}}));
  EXPECT_EQ(config_from_text(resolved(c), "resolved").data.valid, c.data.valid);
  EXPECT_NE(test::message_of<ConfigError>([] {
              config_from_text(kSmall, "x.toml", {"data.valid={web=[]}"});
            }).find("names no file under web"),
            std::string::npos);
  EXPECT_NE(test::message_of<ConfigError>([] {
              config_from_text(kSmall, "x.toml", {R"(data.train={web="b"})"});
            }).find("only data.valid has named sets"),
            std::string::npos);
}

TEST(Override, RefusesWhatIsNoOverride) {
  EXPECT_NE(refusal_of_override("train.steps").find("write table.key=value"), std::string::npos);
  EXPECT_NE(refusal_of_override("=3").find("empty name"), std::string::npos);
  EXPECT_NE(refusal_of_override("train..steps=3").find("empty name"), std::string::npos);
  EXPECT_NE(refusal_of_override("model.layers.x=3").find("not a table (x.toml:2:10)"),
            std::string::npos);
  EXPECT_EQ(refusal_of_override("train.stepz=3"),
            "command line: [train] has no key 'stepz'; nearest: train.steps "
            "(weft train --explain all)");
  EXPECT_NE(refusal_of_override("parallel.data=2").find("known: tensor, pipe, sequence"),
            std::string::npos);
  // A line break must not add a second key.
  EXPECT_NE(refusal_of_override("train.steps=3\nx = 4").find("is a string"), std::string::npos);
}

TEST(Data, RefusesBlendsThatMeanNothing) {
  for (const char* value :
       {"[[0, 'a']]", "[[-1, 'a']]", "[['a', 1]]", "[[1, 'a', 2]]", "[3]", "3", "[[nan, 'a']]"}) {
    EXPECT_NE(refusal_of_override(std::string("data.train=") + value).find("data.train"),
              std::string::npos)
        << value;
  }
}

struct RotaryOptions {
  int64_t heads = 8;
  bool rope = true;
  double base = 1e4;
};
void fields(FieldVisitor& f, RotaryOptions& c) {
  f("heads", c.heads, "heads of the layer", at_least(1));
  f("rope", c.rope, "rotate queries and keys");
  f("base", c.base, "of the rotation", above(0));
}

TEST(OptionTable, IsReadByTheMixerThatOwnsIt) {
  const Config c = config_from_text(kSmall, "x.toml", {"model.layer.N.base=500"});
  const auto options = read_options<RotaryOptions>(c.model.letters.at('N').options, "softmax");
  EXPECT_EQ(options.heads, 8);
  EXPECT_TRUE(options.rope);
  EXPECT_EQ(options.base, 500.0);
}

TEST(OptionTable, RefusesOptionsTheMixerDoesNotHave) {
  const auto message = [](const std::string& override_text) -> std::string {
    const Config c = config_from_text(kSmall, "x.toml", {override_text});
    try {
      read_options<RotaryOptions>(c.model.letters.at('L').options, "retnet");
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("model.layer.L.head=4"),
            "command line: model.layer.L: mixer \"retnet\" has no option 'head'; nearest: 'heads' "
            "(weft info --mixers retnet)");
  EXPECT_EQ(message("model.layer.L.heads=0"),
            "command line: model.layer.L.heads = 0 is too small; it must be an integer of at "
            "least 1; nearest: 1");
  EXPECT_EQ(message("model.layer.L.heads=2"), "accepted");
}

TEST(OptionTable, CanBeMadeInCode) {
  OptionTable table = OptionTable::parse("heads = 3");
  table.set("rope", false);
  const OptionTable copy = table;
  table.set("heads", int64_t{5});
  EXPECT_EQ(read_options<RotaryOptions>(copy, "m").heads, 3);
  EXPECT_EQ(read_options<RotaryOptions>(table, "m").heads, 5);
  EXPECT_FALSE(read_options<RotaryOptions>(copy, "m").rope);
  EXPECT_EQ(read_options<RotaryOptions>(OptionTable(), "m").heads, 8);
}

TEST(Describe, ListsNameTypeDefaultAndRule) {
  const auto infos = describe<RotaryOptions>();
  ASSERT_EQ(infos.size(), 3u);
  EXPECT_EQ(infos[0].name, "heads");
  EXPECT_EQ(infos[0].type, "integer");
  EXPECT_EQ(infos[0].default_value, "8");
  EXPECT_EQ(infos[0].rule, "at least 1");
  EXPECT_EQ(infos[2].default_value, "10000.0");
}

}  // namespace
}  // namespace weft
