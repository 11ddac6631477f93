// Properties of RWKV-7 beyond golden cases and laws: values passed between layers.
#include "core/host_access.h"
#include "layers/mixers/registry.h"
#include "parallel/parameter_values.h"
#include "tests/layers/gradient_fixture.h"

namespace weft::test {
namespace {

// Layers of one model that read the same x; their outputs are added up.
class FirstValue : public Gradients {
 protected:
  void make(const std::vector<int64_t>& layers) {
    for (const int64_t layer : layers) {
      Build b = build().in(fmt::format("block.{}", layer));
      b.layer = layer, b.layers = 4;
      mixers.push_back(make_mixer("rwkv7", MixerBuild{b, options}));
    }
    prepare();
  }
  double loss() {
    SavedStack saved;
    StepContext step;
    double sum = 0;
    for (const auto& mixer : mixers)
      sum += dot(mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved), cotangent);
    return sum;
  }

  enum class Recompute : uint8_t { kNo, kYes };
  Tensor gradient(Recompute recompute) {
    SavedStack saved;
    StepContext step;
    for (const auto& mixer : mixers) mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved);
    const Tensor dx = rig.exec.zeros(x.shape());
    for (size_t i = mixers.size(); i-- > 0;) {
      SavedStack again;
      if (recompute == Recompute::kYes) {
        step.repeating = true;
        mixers[i]->forward(rig.exec, x, {sequence, nullptr, &step}, again);
        step.repeating = false;
      }
      const Tensor part = mixers[i]->backward(rig.exec, cotangent, {sequence, nullptr, &step},
                                              recompute == Recompute::kYes ? again : saved);
      for (int64_t e = 0; e < dx.elements(); ++e) host<float>(dx)[e] += host<float>(part)[e];
    }
    return dx;
  }

  OptionTable options = OptionTable::parse("heads = 2\ndecay_rank = 5\nvalue_rank = 3\n");
  std::vector<std::unique_ptr<Mixer>> mixers;
  Sequence sequence = make_sequence({0, 5, 19});
  Tensor x = rig.normal("x", {19, kHidden}), cotangent = rig.normal("cotangent", {19, kHidden});
};

TEST_F(FirstValue, BringsItsGradientBackToTheFirstLayer) {
  make({0, 1, 3});
  expect_derivative("x", x, gradient(Recompute::kNo), [&] { return loss(); });
  zero_gradients(rig.exec, store);
  gradient(Recompute::kNo);
  expect_all_weights([&] { return loss(); });
}

// In a hybrid stack the first RWKV-7 layer need not be the first layer.
TEST_F(FirstValue, IsThatOfTheFirstLayerThatHasOne) {
  make({2, 3});
  expect_derivative("x", x, gradient(Recompute::kNo), [&] { return loss(); });
}

// A recomputed first layer must not mistake its own values for those of an earlier layer.
TEST_F(FirstValue, SurvivesRecomputation) {
  make({1, 2, 3});
  EXPECT_TRUE(SameBits(gradient(Recompute::kYes), gradient(Recompute::kNo)));
}

// As in configs of the published architecture (fla's RWKV7Config computes the same), where 2.5
// sqrt(1024) / 32 and 5 sqrt(256) / 32 lie halfway between two steps.
TEST(Rwkv7, HasThePublishedRanks) {
  struct Case {
    int64_t hidden, heads, decay, rate, value, gate;
  };
  for (const Case& c : {Case{256, 4, 32, 32, 32, 64}, Case{768, 12, 64, 64, 32, 128},
                        Case{1024, 16, 64, 64, 64, 160}, Case{1024, 8, 160, 160, 96, 160},
                        Case{2048, 32, 128, 128, 64, 224}, Case{4096, 64, 160, 160, 96, 320}}) {
    ParameterStore store;
    Build build{.store = store, .scope = "", .hidden = c.hidden};
    build.layer = 1, build.layers = 2;
    const OptionTable options = OptionTable::parse(fmt::format("heads = {}", c.heads));
    const auto mixer = make_mixer("rwkv7", MixerBuild{build, options});
    const auto rank = [&](const char* name) { return store.find(name)->spec.global[0]; };
    EXPECT_EQ(rank("w1"), c.decay) << c.hidden;
    EXPECT_EQ(rank("a1"), c.rate) << c.hidden;
    EXPECT_EQ(rank("v1"), c.value) << c.hidden;
    EXPECT_EQ(rank("g1"), c.gate) << c.hidden;
  }
}

}  // namespace
}  // namespace weft::test
