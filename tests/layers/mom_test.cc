// Properties of mixtures of memories beyond the laws of every mixer (mixer_laws_test.cc).
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/host_access.h"
#include "kernels/rows/elementwise.h"
#include "layers/memory/memory_router.h"
#include "layers/mixers/registry.h"
#include "parallel/parameter_values.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

constexpr int64_t kTokens = 23;

class Mom : public Gradients {
 protected:
  std::unique_ptr<Mixer> make(const std::string& text) {
    options = OptionTable::parse("heads = 2\ndk = 8\ndv = 12\n" + text);
    return make_mixer("mom", MixerBuild{build(), options});
  }
  std::string refusal(const std::string& text) {
    try {
      make(text);
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

TEST_F(Mom, SendsTiesToTheLowerMemoriesAndLeavesTheOthersAlone) {
  const auto mixer = make("memories = 5");
  prepare();
  Parameter& router = *store.find("t.router.weight");
  kernels::fill(rig.exec, router.master, 0.0f);
  publish(rig.exec, store);
  const Sequence sequence = make_sequence({0, kTokens});
  SavedStack saved;
  MixerState state;
  StepContext step;
  mixer->forward(rig.exec, rig.normal("x", {kTokens, kHidden}), {sequence, &state, &step}, saved);
  EXPECT_EQ(step.reports.at(0).counts, (std::vector<int64_t>{kTokens, kTokens, 0, 0, 0}));
  EXPECT_NEAR(step.reports.at(0).aux, 2.0, 1e-5);  // memories * sum over 2 of 1 * 1/5
  // [1, 6, heads, dk, dv]: two that were written, three that were not, the shared one.
  const Tensor memories = state.part(kRecurrence).at(0).reshaped({6, 2 * 8 * 12});
  for (int64_t m = 0; m < 6; ++m) {
    EXPECT_EQ(dot(memories.row(m), memories.row(m)) > 0, m < 2 || m == 5) << m;
  }
}

// The algebra of a mixture is the product of its memories': each has its own summary, which is the
// identity for tokens routed elsewhere.
TEST_F(Mom, WhatATokenDoesToMemoriesItDoesNotGoToIsNothing) {
  for (const std::string& inner : inner_rules()) {
    Made made(rig, rig.exec, "mom,memories = 5\nshort_conv = false\ninner = '" + inner + "'");
    kernels::fill(rig.exec, made.store.find("t.router.weight")->master, 0.0f);
    publish(rig.exec, made.store);
    std::vector<SpanRecord> records;
    Sequence sequence = make_sequence({0, 1});
    sequence.records = &records;
    SavedStack saved;
    MixerState state;
    made.mixer->forward(rig.exec, rig.normal("x", {1, kHidden}), {sequence, &state}, saved);
    ASSERT_EQ(records.size(), 1u) << inner;
    State entering;
    for (const Tensor& t : records[0].leaving) entering.push_back(rig.normal("s", t.shape()));
    const State leaving = records[0].algebra->apply(rig.exec, records[0].summary, entering);
    for (size_t i = 0; i < leaving.size(); ++i) {
      const Shape flat{6, leaving[i].elements() / 6};  // memories, the shared one last
      for (const int64_t m : {2, 3, 4}) {
        EXPECT_TRUE(SameBits(leaving[i].reshaped(flat).row(m), entering[i].reshaped(flat).row(m)))
            << inner << ", memory " << m;
      }
    }
    const Shape flat{6, leaving[0].elements() / 6};
    EXPECT_FALSE(SameBits(leaving[0].reshaped(flat).row(5), entering[0].reshaped(flat).row(5)))
        << inner << ", the shared memory";
  }
}

// Weights are drawn by their names, so equal names give equal weights.
Tensor forward(Rig& rig, const std::string& mixer, const std::string& text, const Tensor& x,
               const std::function<void(ParameterStore&)>& change = {}) {
  ParameterStore store;
  const OptionTable options = OptionTable::parse("heads = 2\ndk = 8\ndv = 12\n" + text);
  const auto made =
      make_mixer(mixer, MixerBuild{{.store = store, .scope = "t.", .hidden = kHidden}, options});
  store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  initialize(rig.exec, store, 3);
  for (Parameter& p : store.all()) {
    const Tensor fresh = rig.normal(p.spec.name, {p.shape.elements()}, 0.3);
    std::copy_n(host<float>(fresh), p.shape.elements(), host<float>(p.master));
  }
  if (change) change(store);
  publish(rig.exec, store);
  SavedStack saved;
  StepContext step;
  const Sequence sequence = make_sequence({0, 9, kTokens});
  return made->forward(rig.exec, x, {sequence, nullptr, &step}, saved);
}

// Mixers with the mixture's layer structure: projections, convolutions, head norm, output gate.
// Memories of a mixture have no map of queries and keys except after a convolution.
TEST_F(Mom, IsTheMixerItselfWithOneMemoryForAll) {
  const std::map<std::string, std::string> same = {
      {"bla", "short_conv = true\nfeature_map = 'identity'"},
      {"retnet", "short_conv = true\nrope = false"},
      {"gla", "short_conv = true"},
      {"deltanet", "short_conv = true\noutput_gate = true"},
      {"gated_deltanet", "short_conv = true"},
      {"gfw", "short_conv = true"},
      {"gateloop", "short_conv = true"},
      {"ttt", ""},
      {"titans", ""}};
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  for (const auto& [inner, text] : same) {
    const Tensor want = forward(rig, inner, text, x);
    const Tensor got = forward(
        rig, "mom",
        fmt::format("inner = '{}'\nmemories = 1\ntop_k = 1\nshared_memory = false\nshort_conv = {}",
                    inner, text.starts_with("short_conv")),
        x);
    EXPECT_TRUE(Near(got, want, 1e-6)) << inner;
  }
}

TEST_F(Mom, WithoutAConvolutionMapsNothing) {
  const std::string one = "memories = 1\ntop_k = 1\nshared_memory = false\nshort_conv = false\n";
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  EXPECT_TRUE(Near(forward(rig, "mom", one + "inner = 'bla'", x),
                   forward(rig, "bla", "feature_map = 'identity'", x), 1e-6));
  EXPECT_TRUE(
      Near(forward(rig, "mom", one + "inner = 'gla'", x), forward(rig, "gla", "", x), 1e-6));
}

// One projection shared by all memories acts as equal projections of each.
TEST_F(Mom, SharesOneProjectionWhereAsked) {
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  for (const char* inner : {"gated_deltanet", "gla"}) {
    const std::string text = fmt::format("inner = '{}'\n", inner);
    const auto as_shared = [&](ParameterStore& store) {
      for (Parameter& p : store.all()) {
        const size_t at = p.spec.name.find("_proj");
        Parameter* shared = at == std::string::npos
                                ? nullptr
                                : store.find("t.shared_" + p.spec.name.substr(2, at - 2) +
                                             p.spec.name.substr(at + 5));
        if (shared == nullptr) continue;
        const int64_t count = shared->shape.elements();
        for (int64_t i = 0; i < p.shape.elements(); ++i) {
          host<float>(p.master)[i] = host<float>(shared->master)[i % count];
        }
      }
    };
    EXPECT_TRUE(Near(forward(rig, "mom", text + "single_kv_proj = true", x),
                     forward(rig, "mom", text, x, as_shared), 1e-6))
        << inner;
    EXPECT_FALSE(Near(forward(rig, "mom", text + "single_kv_proj = true", x),
                      forward(rig, "mom", text, x), 1e-2))
        << inner;
  }
}

TEST_F(Mom, BalanceLossHasItsGradient) {
  const MemoryRouter router(build(), {.memories = 5, .top_k = 2, .shared = true, .aux_loss = 3.0});
  prepare();
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  StepContext made{.aux_scale = 0.5f};
  const MemoryRouting routing = router.forward(rig.exec, x, &made);
  const Tensor dx = rig.exec.zeros(x.shape());
  router.backward(rig.exec, x, routing, rig.exec.zeros({kTokens, 3}), &made, dx);
  const auto loss = [&] {
    StepContext step;
    step.given_memories[0] = routing.routed.index;  // a choice has no derivative
    router.forward(rig.exec, x, &step);
    return 0.5 * 3.0 * step.reports.at(0).aux;
  };
  expect_derivative("x", x, dx, loss);
  expect_all_weights(loss);
}

TEST_F(Mom, ReportsOncePerStep) {
  const MemoryRouter router(build(), {});
  prepare();
  StepContext step;
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  router.forward(rig.exec, x, &step);
  step.repeating = true;
  router.forward(rig.exec, x, &step);
  ASSERT_EQ(step.reports.size(), 1u);
  EXPECT_TRUE(step.reports[0].memories);
  EXPECT_EQ(step.reports[0].aux_weight, 0.01);
}

TEST_F(Mom, RefusesMoreChoicesThanMemoriesAndNamesTheMost) {
  const std::string message = refusal("memories = 3\ntop_k = 4");
  EXPECT_TRUE(says(message, "top_k = 4")) << message;
  EXPECT_TRUE(says(message, "nearest that works is top_k = 3")) << message;
}

TEST_F(Mom, RefusesAnInnerMixerItDoesNotKnowAndNamesTheNearest) {
  const std::string message = refusal("inner = \"gated_deltnet\"");
  EXPECT_TRUE(says(message, "gated_deltnet")) << message;
  EXPECT_TRUE(says(message, "\"gated_deltanet\"")) << message;
}

// Every mixer is accepted or refused with a reason.
TEST_F(Mom, SaysWhyAMixerCannotBeAMemory) {
  const std::vector<std::string> choices = inner_rules();
  for (const MixerInfo& mixer : mixer_list()) {
    if (std::find(choices.begin(), choices.end(), mixer.name) != choices.end()) continue;
    const std::string message = refusal("inner = '" + mixer.name + "'");
    EXPECT_TRUE(says(message, "a memory is a linear recurrence with heads")) << message;
  }
  EXPECT_TRUE(says(refusal("inner = 'mamba'"), "no heads"));
  EXPECT_TRUE(says(refusal("inner = 'mamba'"), "\"mamba2\" for example"));
  EXPECT_TRUE(says(refusal("inner = 'softmax'"), "no memory of fixed size"));
  EXPECT_TRUE(says(refusal("inner = 'ttt'\nmini_batch = 4"), "an option of ttt, titans"));
}

TEST_F(Mom, RefusesOptionsOfOtherMixers) {
  EXPECT_TRUE(says(refusal("window = 64"), "window"));
  const std::string message = refusal("inner = \"bla\"\ngate_rank = 8");
  EXPECT_TRUE(says(message, "gate_rank")) << message;
  EXPECT_TRUE(says(message, "inner = \"gla\"")) << message;
}

TEST_F(Mom, TensorRanksShareHeadsOfEveryMemory) {
  Coordinates here;
  here[Axis::kTensor] = {1, 2};
  ParameterStore half(here);
  const OptionTable table = OptionTable::parse("heads = 2\ndk = 8\ndv = 12\ninner = 'gla'");
  make_mixer("mom", MixerBuild{{.store = half, .scope = "", .hidden = kHidden}, table});
  EXPECT_EQ(half.find("k_proj.weight")->shape, (Shape{4, 8, kHidden}));
  EXPECT_EQ(half.find("shared_v.weight")->shape, (Shape{12, kHidden}));
  EXPECT_EQ(half.find("gk_proj.1.bias")->shape, (Shape{4, 8}));
  EXPECT_EQ(half.find("gk_proj.0.weight")->shape, (Shape{4, 16, kHidden}));
  EXPECT_EQ(half.find("router.weight")->shape, (Shape{4, kHidden}));
  EXPECT_EQ(half.find("k_conv1d.weight")->shape, (Shape{8, 4}));
}

}  // namespace
}  // namespace weft::test
