// Properties of Liger and the mixers of descent beyond the laws of every mixer
// (mixer_laws_test.cc).
#include <gtest/gtest.h>

#include "core/host_access.h"
#include "layers/mixers/registry.h"
#include "parallel/parameter_values.h"
#include "tests/layers/gradient_fixture.h"

namespace weft::test {
namespace {

class Liger : public Gradients {
 protected:
  std::unique_ptr<Mixer> make(const std::string& mixer, const std::string& text) {
    options = OptionTable::parse("heads = 4\ndk = 8\n" + text);
    return make_mixer(mixer, MixerBuild{build(), options});
  }
  std::string refusal(const std::string& mixer, const std::string& text) {
    try {
      make(mixer, text);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  }
  OptionTable options;
};

bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST_F(Liger, HasTheWeightsOfAttentionAndNoOthers) {
  make("liger", "kv_heads = 2");
  ParameterStore plain;
  make_mixer("softmax", MixerBuild{{.store = plain, .scope = "t.", .hidden = kHidden}, options});
  ASSERT_EQ(store.all().size(), plain.all().size());
  for (size_t i = 0; i < plain.all().size(); ++i) {
    EXPECT_EQ(store.all()[i].spec.name, plain.all()[i].spec.name);
    EXPECT_EQ(store.all()[i].spec.global, plain.all()[i].spec.global);
  }
}

// With alpha = 0 and a window over everything it equals the original attention layer.
TEST_F(Liger, IsSoftmaxAttentionWithoutItsRecurrence) {
  constexpr int64_t kTokens = 23;
  const auto liger = make("liger", "kv_heads = 2\nalpha = 0\nbeta = 1\nwindow = 23");
  prepare();
  ParameterStore plain;
  const OptionTable table = OptionTable::parse("heads = 4\ndk = 8\nkv_heads = 2");
  const auto softmax =
      make_mixer("softmax", MixerBuild{{.store = plain, .scope = "t.", .hidden = kHidden}, table});
  plain.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  for (size_t i = 0; i < plain.all().size(); ++i) {
    const Tensor &from = store.all()[i].master, &to = plain.all()[i].master;
    std::copy_n(host<float>(from), from.elements(), host<float>(to));
  }
  publish(rig.exec, plain);
  const Sequence sequence = make_sequence({0, 5, kTokens});
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  SavedStack a, b;
  const Tensor want = softmax->forward(rig.exec, x, {sequence}, a);
  EXPECT_TRUE(Near(liger->forward(rig.exec, x, {sequence}, b), want, 1e-6));
}

TEST_F(Liger, RefusesAFormItDoesNotKnowAndNamesTheNearest) {
  const std::string message = refusal("liger", "form = \"manba2\"");
  EXPECT_TRUE(says(message, "manba2")) << message;
  EXPECT_TRUE(says(message, "mamba2")) << message;
}

TEST_F(Liger, RefusesOptionsOfOtherFormsAndMixers) {
  const std::string message = refusal("liger", "form = \"gla\"\nlower_bound = 0.5");
  EXPECT_TRUE(says(message, "form = \"hgrn2\"")) << message;
  EXPECT_TRUE(says(refusal("liger", "slots = 4"), "form = \"gsa\""));
  for (const char* form : {"hgrn2", "rwkv6", "mamba2"}) {
    const std::string refused = refusal("liger", fmt::format("form = \"{}\"\ntau = 8", form));
    EXPECT_TRUE(says(refused, "has no tau")) << refused;
  }
  EXPECT_TRUE(says(refusal("liger", "form = \"gsa\"\nslots = 9"), "the nearest that works is 8"));
  EXPECT_TRUE(says(refusal("liger", "feature_map = \"silu\""), "feature_map"));
  EXPECT_TRUE(says(refusal("liger", "window = 0"), "window"));
}

}  // namespace
}  // namespace weft::test
