// Data parallelism with ranks as threads: training does not depend on the number of ranks.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "core/host_access.h"
#include "launcher/train/trainer.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/near.h"
#include "tests/support/rank_training.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

Config tiny(const std::vector<std::string>& overrides = {}) { return tiny_hybrid(overrides); }

History train(const Config& config, int ranks) { return train_on_ranks(config, ranks, rule_batch); }

std::vector<double> losses(const History& h) {
  std::vector<double> out;
  for (const StepResult& s : h.steps) out.push_back(s.loss);
  return out;
}

class OnRanks : public testing::TestWithParam<int> {};

// Sums over a step's tokens are formed in another order: a few hundred roundings of 6e-8, which six
// steps of Adam amplify by at most lr / epsilon each. The routing is that of one rank, since a
// choice between near-equal experts could change.
TEST_P(OnRanks, LossesNormsAndWeightsAreThoseOfOneRank) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  for (const char* scope : {"micro_batch", "sequence", "global_batch"}) {
    const std::string aux = std::string("model.moe.aux_scope=") + scope;
    const History one = train(tiny({aux, "run.routing_trace=write:" + file}), 1);
    for (const char* zero : {"0", "1"}) {
      const History many = train(
          tiny({aux, "run.routing_trace=replay:" + file, std::string("parallel.zero=") + zero}),
          GetParam());
      expect_same_training(many, one, fmt::format("{} zero {}", scope, zero));
    }
  }
}

TEST_P(OnRanks, TheSameBitsComeOutTwice) {
  for (const char* precision : {"f32", "bf16"}) {
    const Config config = tiny({std::string("train.precision=") + precision});
    const History a = train(config, GetParam()), b = train(config, GetParam());
    EXPECT_EQ(losses(a), losses(b)) << precision;
    EXPECT_EQ(a.weights, b.weights) << precision;
  }
}

// Free routing in bf16: within the half percent that the precision allows.
TEST_P(OnRanks, Bf16LossesAreThoseOfOneRank) {
  const History one = train(tiny({"train.precision=bf16"}), 1),
                many = train(tiny({"train.precision=bf16"}), GetParam());
  for (size_t s = 0; s < one.steps.size(); ++s) {
    EXPECT_NEAR(one.steps[s].loss, many.steps[s].loss, 5e-3 * one.steps[s].loss) << s;
  }
}

// The bias of the aux-free router follows the counts of all ranks' tokens.
TEST_P(OnRanks, ExpertsAreBalancedByAllTokens) {
  const std::vector<std::string> o = {"model.moe.router=sigmoid_bias", "model.moe.bias_rate=0.01",
                                      "train.steps=3"};
  const History one = train(tiny(o), 1), many = train(tiny(o), GetParam());
  for (size_t s = 0; s < one.steps.size(); ++s) {
    EXPECT_NEAR(one.steps[s].loss, many.steps[s].loss, 2e-5 * one.steps[s].loss) << s;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnRanks, testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

// Before the first update routing does not depend on the layout, so the trace of three ranks equals
// that of one rank.
TEST(DataParallel, ATraceIsWrittenByAllRanksTogether) {
  const ScratchFolder folder;
  train(tiny({"train.steps=1", "run.routing_trace=write:" + (folder / "one")}), 1);
  train(tiny({"train.steps=1", "run.routing_trace=write:" + (folder / "three")}), 3);
  EXPECT_EQ(get_file(folder / "one"), get_file(folder / "three"));
}

// One rank's rows make its loss infinite: all ranks skip the step.
TEST(DataParallel, RanksSkipAStepTogether) {
  run_ranks(3, [](ThreadComm& world, Exec&) {
    const Config config = tiny();
    Runtime runtime(1);
    const Splitter split = [&](int color, int key, const std::string& axis) {
      return world.split(color, key, axis);
    };
    Trainer trainer(config, runtime,
                    std::make_shared<Mesh>(make_layout(config, world.rank(), 3), split));
    trainer.initialize();
    Parameter& norm = *trainer.parameters().find("norm.weight");
    if (world.rank() == 1) {
      host<float>(norm.master)[5] = std::numeric_limits<float>::quiet_NaN();
      trainer.publish();
    }
    const StepResult result = trainer.step(0, 0, [&](Pool& pool, int64_t first, int64_t rows) {
      return rule_batch(config, pool, first, rows);
    });
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(trainer.updates(), 0);
  });
}

TEST(DataParallel, MomentsAreSharedOut) {
  std::atomic<int64_t> one{0}, parts{0};
  for (const int ranks : {1, 4}) {
    run_ranks(ranks, [&](ThreadComm& world, Exec&) {
      const Config config = tiny();
      Runtime runtime(1);
      const Splitter split = [&](int color, int key, const std::string& axis) {
        return world.split(color, key, axis);
      };
      Trainer trainer(config, runtime,
                      std::make_shared<Mesh>(make_layout(config, world.rank(), ranks), split));
      const int64_t bytes = runtime.ledger().of(Label::kMoments).live;
      (ranks == 1 ? one : parts) += bytes;
      if (ranks == 4) {
        EXPECT_LT(bytes, one / 3);
      }
    });
  }
  EXPECT_LT(parts, one * 5 / 4);  // plus alignment
}

// Written by three ranks, read by two and by one: the run continues as if never interrupted.
TEST(DataParallel, ACheckpointIsReadByAnyNumberOfRanks) {
  const ScratchFolder folder;
  const Config config = tiny();
  const auto on = [&](int ranks, const std::function<void(Trainer&, Runtime&, Mesh&)>& body) {
    run_ranks(ranks, [&](ThreadComm& world, Exec&) {
      Runtime runtime(1);
      const Splitter split = [&](int color, int key, const std::string& axis) {
        return world.split(color, key, axis);
      };
      auto mesh = std::make_shared<Mesh>(make_layout(config, world.rank(), ranks), split);
      Trainer trainer(config, runtime, mesh);
      trainer.initialize();
      body(trainer, runtime, *mesh);
    });
  };
  const BatchSource source = [&](Pool& pool, int64_t first, int64_t rows) {
    return rule_batch(config, pool, first, rows);
  };
  std::vector<double> uninterrupted;
  on(3, [&](Trainer& trainer, Runtime& runtime, Mesh& mesh) {
    for (int64_t s = 0; s < 5; ++s) {
      const double loss = trainer.step(s, s * 12, source).loss;
      if (mesh.rank() == 0) uninterrupted.push_back(loss);
      if (s == 1) {
        save_checkpoint(runtime.exec(), mesh.hosts(), folder / "c",
                        {.step = 2, .updates = trainer.updates()}, trainer.tensors_to_save(), 0);
      }
    }
  });
  const FoundCheckpoint found = verify_checkpoint(folder / "c/step-000000002");
  EXPECT_EQ(found.manifest.files.size(), 3u);
  for (const int ranks : {1, 2, 3, 4}) {
    on(ranks, [&](Trainer& trainer, Runtime&, Mesh& mesh) {
      load_tensors(found, trainer.tensors_to_load(Trainer::State::kEverything));
      trainer.resume(found.manifest.updates);
      trainer.publish();
      for (int64_t s = 2; s < 5; ++s) {
        const double loss = trainer.step(s, s * 12, source).loss,
                     want = uninterrupted[static_cast<size_t>(s)];
        if (ranks == 3) {
          EXPECT_EQ(loss, want) << "the same layout: the same bits";
        } else {
          EXPECT_NEAR(loss, want, 2e-5 * want) << mesh.size() << " ranks, step " << s;
        }
      }
    });
  }
}

}  // namespace
}  // namespace weft::test
