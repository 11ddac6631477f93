// Refusals of mixers state the rule and the nearest value that works. Every message begins with the
// place in the config; common rules are tested for every line of mixers.def.
#include <gtest/gtest.h>

#include "layers/mixers/registry.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

std::string refusal(const std::string& mixer, const std::string& text, int64_t hidden = 48) {
  ParameterStore store;
  const OptionTable options = OptionTable::parse(text);
  try {
    make_mixer(mixer, MixerBuild{{.store = store, .scope = "", .hidden = hidden}, options});
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

struct Case {
  const char* mixer;
  const char* options;
  std::vector<const char*> says;
};

TEST(MixerRefusals, SayTheRuleAndTheNearestThingThatWorks) {
  const Case cases[] = {
      {"retnet", "heads = 5", {"options:1:9", "heads = 5", "model.hidden = 48", "is 4", "set dk"}},
      {"rwkv7", "heads = 5", {"heads = 5", "model.hidden = 48", "is 4"}},
      {"softmax", "heads = 6\nkv_heads = 4", {"kv_heads = 4", "heads = 6", "is 3"}},
      {"gated_deltanet", "heads = 4\nvalue_heads = 6", {"value_heads = 6", "heads = 4", "is 8"}},
      {"mamba2", "heads = 5", {"heads = 5", "96 channels", "is 4"}},
      {"mamba2", "heads = 6\ngroups = 4", {"groups = 4", "heads = 6", "is 3"}},
      {"softmax", "heads = 4\nrope_width = 5", {"rope_width = 5", "even", "dk = 12", "is 4"}},
      {"softmax", "heads = 4\nrope_width = 1", {"rope_width = 1", "even", "is 2"}},
      {"softmax", "heads = 4\nrope_width = 50", {"rope_width = 50", "dk = 12", "is 12"}},
      {"retnet", "heads = 4\ndk = 7", {"dk = 7", "even", "is 6", "rope = false"}},
      {"retnet", "heads = 48", {"dk = 1", "even", "is 2"}},
      {"fox", "heads = 4\ndk = 7\nrope = true", {"dk = 7", "even", "is 6"}},
      {"liger", "heads = 4\ndk = 7", {"dk = 7", "even", "is 6"}},
      {"mom", "heads = 4\nmemories = 3\ntop_k = 4", {"top_k = 4", "memories = 3", "is top_k = 3"}},
      {"retnet",
       "heads = 4\nwindow = 5",
       {"options:2:1", "\"retnet\" has no option 'window'", "an option of softmax, liger;"}},
      {"s4",
       "heads = 4",
       {"\"s4\" has no option 'heads'", "of softmax, fox, mla, bla and ", "known:"}},
      {"gla", "heads = 4\ngate_floor = 3", {"gate_floor = 3", "at most 0", "nearest: 0.0"}},
      {"gla", "heads = 4\ngate_divisor = 0", {"above 0", "default: 16.0"}},
      {"fox", "heads = 4\nacp_log_epsilon = 1", {"below 0", "default: -10.0"}},
      {"gla", "heads = 4\ngate_rnk = 5", {"no option 'gate_rnk'", "nearest: 'gate_rank'"}},
      {"softmax", "heads = 4\nqk_norm_joint = true", {"qk_norm_joint", "set qk_norm = true"}},
      {"fox", "heads = 4\nforget_gate = false\nacp = true", {"acp = true", "forget_gate = true"}}};
  for (const Case& c : cases) {
    const std::string message = refusal(c.mixer, c.options);
    for (const char* part : c.says) {
      EXPECT_NE(message.find(part), std::string::npos) << c.mixer << ": " << message;
    }
  }
}

// Options that a mixer lacks are not proposed.
TEST(MixerRefusals, ProposeOnlyWhatTheMixerTakes) {
  EXPECT_EQ(refusal("liger", "heads = 4\ndk = 7").find("rope = false"), std::string::npos);
  EXPECT_EQ(refusal("rwkv7", "heads = 5").find("set dk"), std::string::npos);
}

TEST(MixerRefusals, NameTheNearestMixer) {
  EXPECT_NE(refusal("retnett", "heads = 4").find("nearest: 'retnet'"), std::string::npos);
}

TEST(MixerRefusals, AreAlikeForEveryMixer) {
  for (const MixerInfo& mixer : mixer_list()) {
    SCOPED_TRACE(mixer.name);
    EXPECT_NE(refusal(mixer.name, "no_such_option = 1").find("no option 'no_such_option'"),
              std::string::npos);
    if (!takes(mixer.name, "heads") || mixer.name == "mamba2") continue;
    EXPECT_NE(refusal(mixer.name, "").find("for example heads = 1"), std::string::npos);
    EXPECT_NE(refusal(mixer.name, "", 512).find("for example heads = 8"), std::string::npos);
    EXPECT_NE(refusal(mixer.name, "heads = 0").find("nearest: 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::test
