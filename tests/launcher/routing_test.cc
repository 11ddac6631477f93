// Routing over whole training steps: buffers, scopes of losses, traces, metrics.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/files/safetensors.h"
#include "core/host_access.h"
#include "launcher/train/expert_metrics.h"
#include "launcher/train/trainer.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

Config config_with(std::vector<std::string> overrides = {}) {
  return config_from_text(R"(
[model]
vocab = 61
hidden = 48
layers = 3
pattern = "LD"
[model.layer.L]
mixer = "retnet"
heads = 3
[model.layer.D]
mixer = "softmax"
heads = 4
ffn = "dense"
[model.moe]
experts = 6
active = 2
ffn = 20
aux_loss = 0.05
z_loss = 0.001
[train]
steps = 4
sequence = 23
global_batch = 4
micro_batch = 2
precision = "f32"
[optimizer]
lr = 3e-3
warmup = 0
schedule = "constant"
eps = 1e-3
[run]
dir = "unused"
)",
                          "routing.toml", overrides);
}

// All options that affect routing or balance without a gradient.
std::vector<std::string> everything() {
  return {"model.moe.router=sigmoid_bias", "model.moe.n_group=3",
          "model.moe.topk_group=2",        "model.moe.capacity=0.9",
          "model.moe.drop_policy=probs",   "model.moe.shared=1",
          "model.moe.shared_gate=true",    "model.moe.aux_scope=global_batch"};
}

Batch batch_of(const Config& config, Pool& pool, int64_t first, int64_t rows) {
  const int64_t length = config.train.sequence;
  Batch batch{.tokens = Tensor::empty(pool, {rows * length}, DType::kI32),
              .targets = Tensor::empty(pool, {rows * length}, DType::kI32),
              .documents = {0},
              .target_tokens = rows * length};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t value = (first + r) * 5 + t * t * 3;
      host<int32_t>(batch.tokens)[r * length + t] = static_cast<int32_t>(value % 61);
      host<int32_t>(batch.targets)[r * length + t] = static_cast<int32_t>((value + 3) % 61);
    }
    batch.documents.push_back(static_cast<int32_t>((r + 1) * length));
  }
  return batch;
}

struct TrainingRun {
  explicit TrainingRun(const Config& config, int threads = 2)
      : config(config), runtime(threads), trainer(this->config, runtime) {
    trainer.initialize();
  }
  StepResult step() {
    const int64_t step = next++;
    return trainer.step(step, step * config.train.global_batch,
                        [&](Pool& pool, int64_t first, int64_t rows) {
                          return batch_of(config, pool, first, rows);
                        });
  }
  std::vector<double> losses() {
    std::vector<double> out;
    while (next < config.train.steps) out.push_back(step().loss);
    trainer.finish();
    return out;
  }
  std::vector<float> weights() {
    std::vector<float> out;
    for (const Parameter& p : trainer.parameters().all()) {
      out.insert(out.end(), host<float>(p.master), host<float>(p.master) + p.master.elements());
    }
    return out;
  }
  Parameter& parameter(const char* name) { return *trainer.parameters().find(name); }

  Config config;
  Runtime runtime;
  Trainer trainer;
  int64_t next = 0;
};

TEST(RoutingRun, TheSameBitsComeOutForAnyNumberOfThreadsAndWithRecompute) {
  TrainingRun one(config_with(everything()), 1);
  const auto losses = one.losses();
  for (const int threads : {2, 3}) {
    TrainingRun other(config_with(everything()), threads);
    EXPECT_EQ(losses, other.losses());
    EXPECT_EQ(one.weights(), other.weights());
  }
  for (const char* mode : {"selective", "full"}) {
    auto overrides = everything();
    overrides.push_back(std::string("train.recompute=") + mode);
    TrainingRun other(config_with(overrides));
    EXPECT_EQ(losses, other.losses()) << mode;
    EXPECT_EQ(one.weights(), other.weights()) << mode;
  }
}

TEST(RoutingRun, TheBiasFollowsTheCountsOfTheWholeStepAndNotTheOptimizer) {
  TrainingRun run(config_with({"model.moe.router=sigmoid_bias", "model.moe.bias_rate=0.01",
                               "optimizer.weight_decay=10.0"}));
  EXPECT_TRUE(run.config.model.moe.renormalize);
  Parameter& bias = run.parameter("block.2.moe.router.bias");
  std::vector<float> want(6);
  for (int step = 0; step < 3; ++step) {
    const StepResult result = run.step();
    const MoeReport& report = result.moe.at(1);
    EXPECT_EQ(report.layer, 2);
    int64_t pairs = 0;
    for (const int64_t count : report.counts) pairs += count;
    EXPECT_EQ(pairs, 4 * 23 * 2) << "all micro-batches of the step";
    for (size_t e = 0; e < 6; ++e) {
      const double short_of =
          static_cast<double>(pairs) / 6 - static_cast<double>(report.counts[e]);
      want[e] += short_of > 0 ? 0.01f : short_of < 0 ? -0.01f : 0.0f;
      EXPECT_EQ(host<float>(bias.master)[e], want[e]);
    }
  }
}

TEST(RoutingRun, BuffersAreNotInTheGradientNorm) {
  TrainingRun run(config_with(everything()));
  ParameterStore& store = run.trainer.parameters();
  const double lr = 1e-2;
  Optimizer optimizer(store, run.runtime.pool(), {});
  zero_gradients(run.runtime.exec(), store);
  for (const char* name : {"block.0.moe.router.bias", "block.0.moe.router.load"}) {
    Parameter& buffer = run.parameter(name);
    EXPECT_TRUE(buffer.spec.buffer);
    std::fill_n(host<float>(buffer.grad), 6, 3.0f);
    optimizer.step(run.runtime.exec(), lr, 1.0, 1);
    for (int e = 0; e < 6; ++e) EXPECT_EQ(host<float>(buffer.master)[e], 0.0f);
  }
  EXPECT_EQ(optimizer.gradient_norm(run.runtime.exec()), 0.0);
}

// Per sequence, and with the loads of the step before, the losses do not depend on the cut into
// micro-batches. Only the order of sums differs: a few roundings of numbers near 4, amplified by
// four Adam steps.
TEST(RoutingRun, ScopesThatDoNotDependOnMicroBatches) {
  for (const char* scope : {"sequence", "global_batch"}) {
    const auto with = [&](const char* micro) {
      TrainingRun run(
          config_with({std::string("model.moe.aux_scope=") + scope, "model.moe.aux_loss=1.0",
                       std::string("train.micro_batch=") + micro}));
      for (const char* name : {"block.0.moe.router.load", "block.2.moe.router.load"}) {
        Parameter* load = run.trainer.parameters().find(name);
        for (int e = 0; load && e < 6; ++e) host<float>(load->master)[e] = e == 1 ? 0.5f : 0.1f;
      }
      std::vector<double> out;
      for (int i = 0; i < 4; ++i) {
        const StepResult result = run.step();
        out.insert(out.end(), {result.loss, result.aux_loss, result.grad_norm});
      }
      return out;
    };
    const auto whole = with("4"), quarters = with("1");
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(whole[i], quarters[i], 2e-5 * whole[i]) << scope << " " << i;
    }
  }
}

TEST(RoutingRun, AStepThatIsNotFiniteLeavesBuffersAloneAndIsNamed) {
  TrainingRun run(config_with(everything()));
  run.step();
  Parameter& router = run.parameter("block.2.moe.router.weight");
  host<float>(router.master)[7] = std::numeric_limits<float>::quiet_NaN();
  run.trainer.publish();
  const auto bits = [](const Parameter& p) {
    return std::vector<float>(host<float>(p.master), host<float>(p.master) + p.master.elements());
  };
  const auto bias = bits(run.parameter("block.2.moe.router.bias"));
  const auto load = bits(run.parameter("block.2.moe.router.load"));
  const StepResult result = run.step();
  EXPECT_TRUE(result.skipped);
  EXPECT_LT(result.moe.at(0).bad_token, 0);
  EXPECT_EQ(result.moe.at(1).layer, 2);
  EXPECT_EQ(result.moe.at(1).bad_token, 0);
  EXPECT_EQ(bits(run.parameter("block.2.moe.router.bias")), bias);
  EXPECT_EQ(bits(run.parameter("block.2.moe.router.load")), load);
}

TEST(RoutingTrace, AReplayMakesTheSameRun) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  auto overrides = everything();
  overrides.push_back("run.routing_trace=write:" + file);
  TrainingRun recorded(config_with(overrides));
  const auto losses = recorded.losses();

  const SafetensorsFile trace(file);
  EXPECT_EQ(trace.metadata().at("experts"), "6");
  EXPECT_EQ(trace.tensors().size(), 4u * 2);  // steps x layers with experts
  EXPECT_EQ(trace.at("step.3.layer.2").shape, (Shape{4 * 23, 2}));

  overrides.back() = "run.routing_trace=replay:" + file;
  TrainingRun replayed(config_with(overrides));
  EXPECT_EQ(replayed.losses(), losses);
  EXPECT_EQ(replayed.weights(), recorded.weights());
}

TEST(RoutingTrace, IsReplayedByARouterThatWouldChooseOtherwiseAndInOtherMicroBatches) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  TrainingRun recorded(config_with({"run.routing_trace=write:" + file}));
  const StepResult want = recorded.step();
  recorded.losses();
  TrainingRun other(
      config_with({"run.routing_trace=replay:" + file, "train.seed=9", "train.micro_batch=1"}));
  TrainingRun free(config_with({"train.seed=9"}));
  const StepResult got = other.step();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(got.moe[i].counts, want.moe[i].counts);
  EXPECT_NE(free.step().moe[0].counts, want.moe[0].counts);
}

TEST(RoutingTrace, RefusesAFileThatDoesNotFitBeforeTheFirstStep) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  TrainingRun(config_with({"run.routing_trace=write:" + file})).losses();
  const auto refusal = [&](const std::string& change) {
    Runtime runtime(1);
    const Config config = config_with({"run.routing_trace=replay:" + file, change});
    return message_of<ConfigError>([&] { Trainer(config, runtime); });
  };
  EXPECT_NE(refusal("train.steps=5").find("nearest: train.steps = 4"), std::string::npos);
  EXPECT_NE(refusal("train.global_batch=2").find("[92, 2]"), std::string::npos);
  EXPECT_NE(refusal("model.moe.active=3").find("model.moe.active"), std::string::npos);
  EXPECT_NE(refusal("model.moe.experts=5").find("to expert 5"), std::string::npos);
  const std::string missing = refusal("run.routing_trace=replay:" + file + ".not");
  EXPECT_NE(missing.find("command line: run.routing_trace"), std::string::npos) << missing;
  EXPECT_NE(missing.find(".not"), std::string::npos) << missing;
}

TEST(ExpertMetrics, SayHowEvenTheLoadsAre) {
  StepMetrics m;
  describe_experts(
      {{.layer = 0, .counts = {5, 5, 5, 5}},
       {.layer = 3, .router_entropy = 0.5, .margin = 0.25, .counts = {12, 0, 8, 0}, .dropped = 4},
       {.layer = 4, .counts = {0, 0, 7}, .dropped = 2}},
      m);
  EXPECT_EQ(m.expert_load, (std::vector<double>{1.0, 0.6 * 4, 3.0}));
  EXPECT_DOUBLE_EQ(m.expert_entropy[0], std::log(4.0));
  EXPECT_DOUBLE_EQ(m.expert_entropy[1], -0.6 * std::log(0.6) - 0.4 * std::log(0.4));
  EXPECT_EQ(m.expert_entropy[2], 0.0);
  EXPECT_EQ(m.dead_experts, (std::vector<int64_t>{0, 2, 2}));
  EXPECT_EQ(m.router_entropy[1], 0.5);
  EXPECT_EQ(m.router_margin[1], 0.25);
  EXPECT_EQ(m.dropped_by_layer, (std::vector<int64_t>{0, 4, 2}));
  EXPECT_EQ(m.dropped, 6);
}

}  // namespace
}  // namespace weft::test
