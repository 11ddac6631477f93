// Properties of TTT and Titans beyond the laws of every mixer (mixer_laws_test.cc).
#include <gtest/gtest.h>

#include "layers/mixers/registry.h"
#include "tests/layers/gradient_fixture.h"

namespace weft::test {
namespace {

std::string refusal(const std::string& mixer, const std::string& text) {
  ParameterStore store;
  const OptionTable options = OptionTable::parse("heads = 4\n" + text);
  try {
    make_mixer(mixer, MixerBuild{{.store = store, .scope = "", .hidden = kHidden}, options});
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(Descent, RefusesMiniBatchesWithoutTokensAndOptionsOfOtherMixers) {
  EXPECT_TRUE(says(refusal("ttt", "mini_batch = 0"), "mini_batch"));
  EXPECT_TRUE(says(refusal("titans", "mini_batch = 0"), "mini_batch"));
  EXPECT_TRUE(says(refusal("titans", "eta_base = 1.0"), "eta_base"));
}

// An update that is not affine needs a loop over tokens; users get a remark.
TEST(Descent, SaysThatANormInsideRunsTokenByToken) {
  const auto remark = [](const std::string& mixer, const std::string& text) {
    return remark_on(mixer, OptionTable::parse("heads = 4\n" + text));
  };
  EXPECT_TRUE(says(remark("ttt", "inner_norm = true\nmini_batch = 1"), "token by token"));
  EXPECT_TRUE(says(remark("ttt", "inner_norm = true\nmini_batch = 1"), "mini_batch = 16"));
  EXPECT_EQ(remark("ttt", "inner_norm = true"), "");
  EXPECT_EQ(remark("ttt", ""), "");
  EXPECT_EQ(remark("gla", ""), "");
}

TEST(Descent, TensorRanksShareHeadsAndGates) {
  Coordinates here;
  here[Axis::kTensor] = {1, 2};
  ParameterStore half(here);
  const OptionTable options = OptionTable::parse("heads = 4");
  make_mixer("titans", MixerBuild{{.store = half, .scope = "", .hidden = kHidden}, options});
  EXPECT_EQ(half.find("k_proj.weight")->shape, (Shape{16, kHidden}));
  EXPECT_EQ(half.find("alpha_proj.weight")->shape, (Shape{2, kHidden}));
  EXPECT_EQ(half.find("alpha_proj.bias")->shape, (Shape{2}));
  EXPECT_EQ(half.find("alpha_proj.bias")->spec.init.a, -4.0);
}

}  // namespace
}  // namespace weft::test
