#include "launcher/train/trainer.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/near.h"

namespace weft::test {
namespace {

// A tiny hybrid with every kind of layer; odd widths where they are allowed.
Config tiny(const std::vector<std::string>& overrides = {}) {
  return config_from_text(R"(
[model]
vocab = 61
hidden = 48
layers = 4
pattern = "LBND"
[model.layer.L]
mixer = "retnet"
heads = 3
[model.layer.B]
mixer = "bla"
heads = 4
dk = 8
dv = 12
[model.layer.N]
mixer = "softmax"
heads = 4
kv_heads = 2
qk_norm = true
[model.layer.D]
mixer = "lightning"
heads = 3
ffn = "dense"
[model.moe]
experts = 5
active = 2
ffn = 20
shared = 1
aux_loss = 0.01
z_loss = 0.001
[train]
steps = 6
sequence = 37
global_batch = 4
micro_batch = 2
precision = "f32"
[optimizer]
lr = 3e-3
warmup = 0
schedule = "constant"
[run]
dir = "unused"
)",
                          "tiny.toml", overrides);
}

// Rows of a simple rule, so that there is something to learn.
Batch counting_batch(const Config& config, Pool& pool, int64_t first, int64_t rows) {
  const int64_t length = config.train.sequence;
  Batch batch{.tokens = Tensor::empty(pool, {rows * length}, DType::kI32),
              .targets = Tensor::empty(pool, {rows * length}, DType::kI32),
              .documents = {0},
              .target_tokens = rows * length};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t value = (first + r) * 5 + t * 3;
      host<int32_t>(batch.tokens)[r * length + t] = static_cast<int32_t>(value % 61);
      host<int32_t>(batch.targets)[r * length + t] = static_cast<int32_t>((value + 3) % 61);
    }
    batch.documents.push_back(static_cast<int32_t>(r * length + 11));  // two documents in each row
    batch.documents.push_back(static_cast<int32_t>((r + 1) * length));
  }
  return batch;
}

struct History {
  std::vector<double> losses, norms;
  std::vector<float> weights;
};

History run(const Config& config, int threads = 2, int64_t steps = 6) {
  Runtime runtime(threads);
  Trainer trainer(config, runtime);
  trainer.initialize();
  History out;
  for (int64_t s = 0; s < steps; ++s) {
    const StepResult result = trainer.step(s, s * 4, [&](Pool& pool, int64_t first, int64_t rows) {
      return counting_batch(config, pool, first, rows);
    });
    EXPECT_FALSE(result.skipped);
    out.losses.push_back(result.loss);
    out.norms.push_back(result.grad_norm);
  }
  for (const Parameter& p : trainer.parameters().all()) {
    out.weights.insert(out.weights.end(), host<float>(p.master),
                       host<float>(p.master) + p.master.elements());
  }
  return out;
}

class InEveryPrecision : public testing::TestWithParam<std::string> {
 protected:
  Config config(std::vector<std::string> overrides = {}) {
    overrides.push_back("train.precision=" + GetParam());
    return tiny(overrides);
  }
};

TEST_P(InEveryPrecision, TheLossStartsAtChanceAndFalls) {
  const History r = run(config({"train.steps=30"}), 2, 30);
  EXPECT_NEAR(r.losses.front(), std::log(61.0), 0.1);
  EXPECT_LT(r.losses.back(), r.losses.front() - 1.0);
}

TEST_P(InEveryPrecision, TheSameBitsComeOutTwiceAndForAnyNumberOfThreads) {
  const History one = run(config(), 1), again = run(config(), 1), two = run(config(), 2),
                three = run(config(), 3);
  EXPECT_EQ(one.losses, again.losses);
  EXPECT_EQ(one.weights, again.weights);
  EXPECT_EQ(one.losses, two.losses);
  EXPECT_EQ(one.norms, two.norms);
  EXPECT_EQ(one.weights, two.weights);
  EXPECT_EQ(one.losses, three.losses);
  EXPECT_EQ(one.weights, three.weights);
}

TEST_P(InEveryPrecision, RecomputeChangesNoBit) {
  const History kept = run(config());
  for (const char* mode : {"selective", "full"}) {
    const History recomputed = run(config({std::string("train.recompute=") + mode}));
    EXPECT_EQ(kept.losses, recomputed.losses) << mode;
    EXPECT_EQ(kept.weights, recomputed.weights) << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(All, InEveryPrecision, testing::Values("f32", "bf16"),
                         [](const auto& info) { return info.param; });

// Without balance losses (they are means over a micro-batch) the cut into micro-batches changes
// only the order of sums: a few roundings of numbers near 4, amplified by six Adam steps.
TEST(Trainer, MicroBatchesAddUpToTheBatch) {
  const std::vector<std::string> plain = {"model.moe.aux_loss=0.0", "model.moe.z_loss=0.0"};
  auto with = [&](const char* micro) {
    auto o = plain;
    o.push_back(std::string("train.micro_batch=") + micro);
    o.push_back("optimizer.eps=1e-3");
    return run(tiny(o));
  };
  const History whole = with("4"), halves = with("2"), quarters = with("1");
  for (size_t s = 0; s < whole.losses.size(); ++s) {
    EXPECT_NEAR(whole.losses[s], halves.losses[s], 2e-5 * whole.losses[s]);
    EXPECT_NEAR(whole.losses[s], quarters.losses[s], 2e-5 * whole.losses[s]);
  }
}

TEST(Trainer, RecomputeKeepsFewerActivations) {
  const auto peak = [](const char* mode) {
    const Config config =
        tiny({std::string("train.recompute=") + mode, "train.sequence=128", "train.micro_batch=4"});
    Runtime runtime(1);
    Trainer trainer(config, runtime);
    trainer.initialize();
    trainer.step(0, 0, [&](Pool& pool, int64_t first, int64_t rows) {
      return counting_batch(config, pool, first, rows);
    });
    return runtime.ledger().of(Label::kActivations).peak;
  };
  const int64_t none = peak("none"), selective = peak("selective"), full = peak("full");
  EXPECT_LT(selective, none);
  EXPECT_LT(full, selective);
}

TEST(Trainer, NothingIsLeftBehindByAStep) {
  const Config config = tiny();
  Runtime runtime(2);
  Trainer trainer(config, runtime);
  trainer.initialize();
  const auto source = [&](Pool& pool, int64_t first, int64_t rows) {
    return counting_batch(config, pool, first, rows);
  };
  trainer.step(0, 0, source);
  EXPECT_EQ(runtime.ledger().of(Label::kActivations).live, 0);
  EXPECT_EQ(runtime.ledger().of(Label::kScratch).live, 0);
  const int64_t reserved = runtime.pool().reserved();
  trainer.step(1, 1 * 4, source);
  trainer.step(2, 2 * 4, source);
  EXPECT_EQ(runtime.pool().reserved(), reserved) << "a step needs more memory than the one before";
}

TEST(Trainer, AStepThatIsNotFiniteChangesNothing) {
  const Config config = tiny();
  Runtime runtime(2);
  Trainer trainer(config, runtime);
  trainer.initialize();
  Parameter& norm = *trainer.parameters().find("norm.weight");
  host<float>(norm.master)[5] = std::numeric_limits<float>::quiet_NaN();
  trainer.publish();
  Parameter& embed = *trainer.parameters().find("embed.weight");
  const std::vector<float> before(host<float>(embed.master),
                                  host<float>(embed.master) + embed.master.elements());
  const StepResult result = trainer.step(0, 0, [&](Pool& pool, int64_t first, int64_t rows) {
    return counting_batch(config, pool, first, rows);
  });
  EXPECT_TRUE(result.skipped);
  const std::vector<float> after(host<float>(embed.master),
                                 host<float>(embed.master) + embed.master.elements());
  EXPECT_EQ(before, after);
}

TEST(Trainer, ARouterThatIsNotFiniteIsNamed) {
  const Config config = tiny();
  Runtime runtime(2);
  Trainer trainer(config, runtime);
  trainer.initialize();
  host<float>(trainer.parameters().find("block.1.moe.router.weight")->master)[0] =
      std::numeric_limits<float>::infinity();
  trainer.publish();
  const StepResult result = trainer.step(0, 0, [&](Pool& pool, int64_t first, int64_t rows) {
    return counting_batch(config, pool, first, rows);
  });
  EXPECT_TRUE(result.skipped);
  ASSERT_EQ(result.moe.size(), 3u);  // layers L, B, N
  EXPECT_LT(result.moe[0].bad_token, 0);
  EXPECT_EQ(result.moe[1].layer, 1);
  EXPECT_EQ(result.moe[1].bad_token, 0);
}

TEST(Trainer, VectorsAreDeclaredWithoutWeightDecay) {
  const Config config = tiny({"optimizer.lr=1e-2", "optimizer.weight_decay=10.0"});
  Runtime runtime(1);
  Trainer trainer(config, runtime);
  for (const Parameter& p : trainer.parameters().all()) {
    const bool vector = p.spec.global.dims() == 1;
    EXPECT_EQ(p.spec.weight_decay, !vector) << p.spec.name;
  }
}

}  // namespace
}  // namespace weft::test
