// Expert parallelism in training, with ranks as threads: experts, and the width of experts, spread
// over data, sequence and tensor ranks in every way, train as on one rank.
#include <gtest/gtest.h>

#include "launcher/train/trainer.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/near.h"
#include "tests/support/rank_training.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

struct Places {
  int ranks, sequence, expert, expert_tensor;
  int tensor = 1;
  const char* zero = "1";

  std::vector<std::string> settings() const {
    return {"model.moe.experts=8", "parallel.sequence=" + std::to_string(sequence),
            "parallel.expert=" + std::to_string(expert),
            "parallel.expert_tensor=" + std::to_string(expert_tensor),
            std::string("parallel.zero=") + zero};
  }
  std::string name() const {
    return fmt::format("ranks_{}_tensor_{}_sequence_{}_expert_{}_expert_tensor_{}_zero_{}", ranks,
                       tensor, sequence, expert, expert_tensor, zero);
  }
};

Config tiny(const Places& places, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = places.settings();
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_hybrid(all);
}

History train(const Places& places, const std::vector<std::string>& overrides = {}) {
  return train_on_ranks(tiny(places, overrides), places.ranks, rule_batch);
}

constexpr Places kOne{1, 1, 1, 1};

class ExpertPlaces : public testing::TestWithParam<Places> {};

TEST_P(ExpertPlaces, GiveTheTrainingOfOneRank) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  const std::string steps = "train.steps=4";
  const History one = train(kOne, {steps, "run.routing_trace=write:" + file});
  for (const char* deduplicate : {"true", "false"}) {
    const History many = train(GetParam(), {steps, "run.routing_trace=replay:" + file,
                                            std::string("parallel.deduplicate=") + deduplicate});
    expect_same_training(many, one, std::string("deduplicate ") + deduplicate);
  }
}

TEST_P(ExpertPlaces, GiveTheSameBitsTwiceAndRecomputed) {
  for (const char* precision : {"f32", "bf16"}) {
    const std::string type = std::string("train.precision=") + precision;
    const History a = train(GetParam(), {type, "train.steps=2"});
    for (const char* recompute : {"none", "full"}) {
      const History b =
          train(GetParam(), {type, "train.steps=2", std::string("train.recompute=") + recompute});
      for (size_t s = 0; s < a.steps.size(); ++s) EXPECT_EQ(a.steps[s].loss, b.steps[s].loss);
      EXPECT_EQ(a.weights, b.weights) << precision << " recompute " << recompute;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertPlaces,
                         testing::Values(Places{2, 1, 2, 1}, Places{2, 2, 2, 1}, Places{4, 1, 4, 1},
                                         Places{4, 1, 2, 1}, Places{4, 1, 2, 1, 1, "0"},
                                         Places{4, 2, 2, 1}, Places{4, 2, 4, 1}, Places{2, 1, 1, 2},
                                         Places{4, 1, 2, 2}, Places{8, 2, 4, 1}, Places{8, 2, 2, 2},
                                         Places{2, 1, 2, 1, 2}, Places{4, 2, 4, 1, 2},
                                         Places{4, 1, 2, 2, 2}, Places{8, 2, 2, 1, 2}),
                         [](const auto& info) { return info.param.name(); });

// Free routing in bf16: within the half percent that the precision allows.
TEST(ExpertParallel, Bf16LossesAreThoseOfOneRank) {
  const History one = train(kOne, {"train.precision=bf16"}),
                many = train({4, 1, 4, 1}, {"train.precision=bf16"});
  for (size_t s = 0; s < one.steps.size(); ++s) {
    EXPECT_NEAR(one.steps[s].loss, many.steps[s].loss, 5e-3 * one.steps[s].loss) << s;
  }
}

// With equal tokens on every rank, the placement of experts changes nothing before the first
// update.
TEST(ExpertParallel, PlacesChangeNoBitOfTheFirstForwardWithoutDeduplication) {
  for (const char* precision : {"f32", "bf16"}) {
    const std::vector<std::string> o = {std::string("train.precision=") + precision,
                                        "train.steps=1", "parallel.deduplicate=false"};
    const double apart = train({4, 1, 1, 1}, o).steps[0].loss;
    EXPECT_EQ(train({4, 1, 2, 1}, o).steps[0].loss, apart) << precision;
    EXPECT_EQ(train({4, 1, 4, 1}, o).steps[0].loss, apart) << precision;
  }
}

// Dropping considers all tokens of a micro-batch, which sequence ranks share.
TEST(ExpertParallel, DropTheSamePairsAsOneRank) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  for (const char* policy : {"position", "probs"}) {
    const std::vector<std::string> o = {"model.moe.capacity=0.9", "train.micro_batch=2",
                                        std::string("model.moe.drop_policy=") + policy};
    const auto with = [&](const std::string& trace) {
      std::vector<std::string> all = o;
      all.push_back("run.routing_trace=" + trace);
      return all;
    };
    const History one = train(kOne, with("write:" + file));
    EXPECT_GT(one.steps[0].moe[0].dropped, 0);
    expect_same_training(train({2, 2, 2, 1}, with("replay:" + file)), one, policy);
    expect_same_training(train({4, 2, 4, 1}, with("replay:" + file)), one, policy);
    expect_same_training(train({4, 2, 2, 1, 2}, with("replay:" + file)), one, policy);
  }
}

// Runs `body` with a trainer on every rank.
void on_ranks(const Places& places,
              const std::function<void(Trainer&, Runtime&, const Mesh&)>& body) {
  const Config config = tiny(places);
  run_ranks(places.ranks, [&](ThreadComm& world, Exec&) {
    Runtime runtime(1);
    const Splitter split = [&](int color, int key, const std::string& axis) {
      return world.split(color, key, axis);
    };
    const auto mesh =
        std::make_shared<Mesh>(make_layout(config, world.rank(), places.ranks), split);
    Trainer trainer(config, runtime, mesh);
    trainer.initialize();
    body(trainer, runtime, *mesh);
  });
}

BatchSource source_of(const Config& config) {
  return [&config](Pool& pool, int64_t first, int64_t rows) {
    return rule_batch(config, pool, first, rows);
  };
}

// Saved under one placement, resumed under others: the run continues as if never interrupted.
TEST(ExpertParallel, ACheckpointIsReadUnderAnyPlacement) {
  const std::vector<Places> all = {kOne, {2, 1, 2, 1}, {4, 1, 2, 1}, {4, 1, 2, 2}, {2, 2, 2, 1}};
  const Config config = tiny(kOne);
  for (const Places& writer : {Places{2, 1, 2, 1}, kOne, Places{4, 1, 2, 2}}) {
    const ScratchFolder folder;
    std::vector<double> uninterrupted;
    on_ranks(writer, [&](Trainer& trainer, Runtime& runtime, const Mesh& mesh) {
      for (int64_t s = 0; s < 4; ++s) {
        const double loss = trainer.step(s, s * 12, source_of(config)).loss;
        if (mesh.rank() == 0) uninterrupted.push_back(loss);
        if (s != 1) continue;
        save_checkpoint(runtime.exec(), mesh.hosts(), folder / "c",
                        {.step = 2, .updates = trainer.updates()}, trainer.tensors_to_save(), 0);
      }
    });
    const FoundCheckpoint found = verify_checkpoint(folder / "c/step-000000002");
    for (const Places& reader : all) {
      on_ranks(reader, [&](Trainer& trainer, Runtime&, const Mesh&) {
        load_tensors(found, trainer.tensors_to_load(Trainer::State::kEverything));
        trainer.resume(found.manifest.updates);
        trainer.publish();
        for (int64_t s = 2; s < 4; ++s) {
          const double loss = trainer.step(s, s * 12, source_of(config)).loss,
                       want = uninterrupted[static_cast<size_t>(s)];
          EXPECT_NEAR(loss, want, 2e-5 * want) << writer.name() << " to " << reader.name();
        }
      });
    }
  }
}

// A rank holds only its experts: half of them, or half of the width of each.
TEST(ExpertParallel, EveryRankHoldsItsShareOfTheExperts) {
  on_ranks({4, 1, 2, 2}, [](Trainer& trainer, Runtime&, const Mesh&) {
    const Parameter& in = *trainer.parameters().find("block.0.moe.experts.w_gate_up");
    const Parameter& down = *trainer.parameters().find("block.0.moe.experts.w_down");
    EXPECT_EQ(in.shape, (Shape{4, 20, 48}));
    EXPECT_EQ(down.shape, (Shape{4, 48, 10}));
  });
}

TEST(ExpertParallel, ExpertsThatCannotBeSharedEvenlyAreRefused) {
  const auto message = [](const Places& places) -> std::string {
    try {
      make_layout(tiny(places), 0, places.ranks);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string experts = message({3, 1, 3, 1}), width = message({3, 1, 1, 3});
  EXPECT_NE(experts.find("parallel.expert = 3 does not divide model.moe.experts = 8"),
            std::string::npos)
      << experts;
  EXPECT_NE(experts.find("nearest: 2"), std::string::npos) << experts;
  EXPECT_NE(width.find("model.moe.ffn = 20 cannot be cut over 3 expert_tensor ranks"),
            std::string::npos)
      << width;
}

}  // namespace
}  // namespace weft::test
