#include "kernels/gates/lower_bounds.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "layers/mixers/registry.h"
#include "tests/layers/gradient_fixture.h"

namespace weft::test {
namespace {

class SharedLowerBounds : public Gradients {
 protected:
  std::unique_ptr<Mixer> layer(int64_t index, const OptionTable& options) {
    Build b = build().in(std::to_string(index));
    b.layer = index, b.layers = 4;
    return make_mixer("hgrn2", MixerBuild{b, options});
  }
};

TEST_F(SharedLowerBounds, AreOneParameterOfAllLayers) {
  const OptionTable options = OptionTable::parse("heads = 2\nlower_bounds = \"shared\"");
  const auto first = layer(0, options), second = layer(1, options), third = layer(2, options);
  const Parameter* bounds = store.find("hgrn2.lower_bounds");
  ASSERT_NE(bounds, nullptr);
  EXPECT_EQ(bounds->spec.global, (Shape{4, kHidden}));
  EXPECT_EQ(std::count_if(store.all().begin(), store.all().end(),
                          [&](const Parameter& p) { return p.spec.name == bounds->spec.name; }),
            1);
  EXPECT_FALSE(bounds->spec.weight_decay);
  const OptionTable other = OptionTable::parse("heads = 2\ndk = 5\nlower_bounds = \"shared\"");
  EXPECT_THROW(layer(3, other), ConfigError);
}

// Shared bounds are the published default; a layer with its own bound is an exception.
TEST_F(SharedLowerBounds, AreTheDefault) {
  layer(1, OptionTable::parse("heads = 2"));
  EXPECT_NE(store.find("hgrn2.lower_bounds"), nullptr);
  EXPECT_EQ(store.find("t.1.lower_bound"), nullptr);
  layer(2, OptionTable::parse("heads = 4\ndk = 5\nlower_bound = 0.25"));
  EXPECT_NE(store.find("t.2.lower_bound"), nullptr);
  const OptionTable both = OptionTable::parse("heads = 2\nlower_bounds='shared'\nlower_bound=0.5");
  EXPECT_THROW(layer(3, both), ConfigError);
}

TEST_F(SharedLowerBounds, AddUpTheGradientsOfTheirLayers) {
  const OptionTable options = OptionTable::parse("heads = 2\nlower_bounds = \"shared\"");
  const auto first = layer(0, options), second = layer(1, options), third = layer(2, options);
  prepare();
  const Sequence sequence = make_sequence({0, 9, 21});
  const Tensor x = rig.normal("x", {21, kHidden}), cotangent = rig.normal("c", {21, kHidden});
  const auto loss = [&] {
    SavedStack saved;
    return dot(first->forward(rig.exec, x, {sequence}, saved), cotangent) +
           dot(second->forward(rig.exec, x, {sequence}, saved), cotangent) +
           dot(third->forward(rig.exec, x, {sequence}, saved), cotangent);
  };
  for (const auto& mixer : {&first, &second, &third}) {
    SavedStack saved;
    (*mixer)->forward(rig.exec, x, {sequence}, saved);
    (*mixer)->backward(rig.exec, cotangent, {sequence}, saved);
  }
  for (const auto& mixer : {&first, &second, &third}) (*mixer)->finish_gradients(rig.exec);
  expect_all_weights(loss);
}

TEST(LowerBounds, GrowWithDepthFromZero) {
  Rig rig;
  const Tensor raw = rig.normal("raw", {5, 3}), bound = rig.exec.empty({3});
  std::vector<double> below(3, 0.0);
  for (int64_t l = 0; l < 5; ++l) {
    kernels::lower_bound_forward(rig.exec, l, raw, bound);
    const auto here = numbers(bound);
    for (int c = 0; c < 3; ++c) {
      if (l == 0)
        EXPECT_EQ(here[c], 0.0);
      else
        EXPECT_GT(here[c], below[c]);
      EXPECT_LT(here[c], 1.0);
    }
    below = here;
  }
}

}  // namespace
}  // namespace weft::test
