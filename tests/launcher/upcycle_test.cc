#include "launcher/checkpoint/upcycle.h"
#include "core/host_access.h"
#include "parallel/parameter_values.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "launcher/checkpoint/loaded_model.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

struct Case {
  const char* name;
  const char* activation;
  Upcycling how;
};

std::string dense_config(const std::string& activation) {
  return R"(
[model]
vocab = 61
hidden = 32
layers = 3
pattern = "LN"
[model.dense]
ffn = 48
activation = ")" +
         activation + R"("
[model.layer.L]
mixer = "bla"
heads = 2
ffn = "dense"
[model.layer.N]
mixer = "softmax"
heads = 2
ffn = "dense"
[data]
train = ["none"]
[train]
precision = "f32"
)";
}

// A dense model with random weights, saved; its loss on some tokens.
struct Dense {
  Dense(Runtime& runtime, const std::string& folder, const std::string& activation) {
    const Config config = config_from_text(dense_config(activation), "test");
    ParameterStore store;
    const ModelStage stage(config.model, Recompute::kNone, DType::kF32, store);
    store.allocate(runtime.pool(), DType::kF32, ParameterStore::Gradients::kNone);
    initialize(runtime.exec(), store, 5);
    for (Parameter& p : store.all()) {  // so that the feed-forwards matter
      if (p.spec.name.find("mlp") == std::string::npos) continue;
      for (int64_t i = 0; i < p.shape.elements(); ++i) host<float>(p.master)[i] *= 10;
    }
    Manifest manifest;
    manifest.config = resolved(config);
    save_checkpoint(checkpoint_folder(folder), manifest, saved_weights(store), 0,
                    {{"tokenizer.json", "of the dense one"}});
    path = folder;
  }
  std::string path;
};

double loss_of(Runtime& runtime, const std::string& folder) {
  const LoadedModel model(runtime, open_checkpoint(folder), DType::kF32);
  const int64_t count = 53;
  const Tensor tokens = runtime.exec().empty({count}, DType::kI32),
               targets = runtime.exec().empty({count}, DType::kI32);
  for (int64_t i = 0; i < count; ++i) {
    host<int32_t>(tokens)[i] = static_cast<int32_t>(i * 17 % 61);
    host<int32_t>(targets)[i] = static_cast<int32_t>(i * 29 % 61);
  }
  const Sequence sequence = make_sequence({0, 20, static_cast<int32_t>(count)});
  return model.stage().evaluate(runtime.exec(), tokens, targets, sequence);
}

class Upcycled : public testing::TestWithParam<Case> {};

TEST_P(Upcycled, ComputesWhatTheDenseModelDid) {
  Runtime runtime(2);
  const ScratchFolder folder;
  const Dense dense(runtime, folder.path().string() + "/dense", GetParam().activation);
  upcycle(runtime, open_checkpoint(dense.path), GetParam().how, folder.path().string() + "/sparse");
  const double before = loss_of(runtime, dense.path),
               after = loss_of(runtime, folder.path().string() + "/sparse");
  EXPECT_NEAR(after, before, 1e-5 * before);  // sums of f32 in another order
  const Config config = config_from_text(
      open_checkpoint(folder.path().string() + "/sparse").manifest.config, "sparse");
  EXPECT_EQ(config.model.moe.experts, GetParam().how.experts);
  EXPECT_EQ(config.model.moe.ffn * GetParam().how.slices, 48);
  EXPECT_TRUE(std::filesystem::exists(folder.path().string() + "/sparse/config.toml"));
  const FoundCheckpoint sparse = open_checkpoint(folder.path().string() + "/sparse");
  EXPECT_EQ(others_of(sparse), others_of(open_checkpoint(dense.path)));
  EXPECT_EQ(others_of(sparse).at("tokenizer.json"), "of the dense one");
}

INSTANTIATE_TEST_SUITE_P(
    All, Upcycled,
    testing::Values(
        Case{"Copies", "swiglu", {.experts = 8, .active = 2}},
        Case{"OneActive", "swiglu", {.experts = 5, .active = 1}},
        Case{"Slices", "swiglu", {.experts = 12, .active = 6, .slices = 3}},
        Case{"SlicesOfGelu", "gelu", {.experts = 8, .active = 4, .slices = 4}},
        Case{"TopkSoftmax",
             "relu2",
             {.experts = 6, .active = 4, .slices = 2, .layers = "L", .router = "topk_softmax"}},
        Case{"SigmoidBias",
             "swiglu",
             {.experts = 8, .active = 4, .slices = 2, .router = "sigmoid_bias"}}),
    [](const auto& info) { return info.param.name; });

TEST(Upcycling, RefusesWhatDoesNotDivideAndNamesTheNearest) {
  Runtime runtime(1);
  const ScratchFolder folder;
  const Dense dense(runtime, folder.path().string() + "/dense", "swiglu");
  const auto message = [&](const Upcycling& how) -> std::string {
    try {
      upcycle(runtime, open_checkpoint(dense.path), how, folder.path().string() + "/sparse");
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(message({.slices = 5}).find("nearest that does is 4"), std::string::npos);
  EXPECT_NE(message({.experts = 10, .active = 4, .slices = 4}).find("is 12"), std::string::npos);
  EXPECT_NE(message({.experts = 8, .active = 3, .slices = 4}).find("is 4"), std::string::npos);
  EXPECT_NE(message({.experts = 2, .active = 4}).find("at most 2"), std::string::npos);
  EXPECT_NE(message({.layers = "X"}).find("those that have: LN"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path().string() + "/sparse"));
}

}  // namespace
}  // namespace weft::test
