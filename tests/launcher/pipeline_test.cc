// Pipeline parallelism in training, with ranks as threads: distributing layers over ranks changes
// no bit of losses, norms and weights under any schedule.
#include <gtest/gtest.h>

#include <map>

#include "core/host_access.h"
#include "launcher/train/trainer.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/rank_training.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Eight layers with values passed between them: the value of the first RWKV-7 layer (A), bounds
// shared by all HGRN2 layers (B), experts (C), memories (D). Six sequences a step, so that 1, 2 and
// 3 data ranks could share them; two documents each.
Config tiny(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"train.sequence=13", "train.global_batch=6", "optimizer.lr=3e-3"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_config(R"(
[model]
vocab = 61
hidden = 24
layers = 8
pattern = "BACDABCA"
tie_embeddings = false
[model.layer.A]
mixer = "rwkv7"
heads = 2
ffn = "none"
[model.layer.B]
mixer = "hgrn2"
heads = 2
lower_bounds = "shared"
ffn = "dense"
[model.layer.C]
mixer = "softmax"
heads = 4
kv_heads = 2
[model.layer.D]
mixer = "mom"
heads = 2
ffn = "dense"
[model.moe]
experts = 5
active = 2
ffn = 20
shared = 1
aux_loss = 0.01
z_loss = 0.001
)",
                     all);
}

History train(const Config& config, int ranks) { return train_on_ranks(config, ranks, rule_batch); }

using Overrides = std::vector<std::string>;

Overrides joined(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Results of one rank with these settings, computed once.
const History& on_one_rank(const Overrides& settings) {
  static std::map<Overrides, History> known;
  const auto [at, added] = known.try_emplace(settings);
  if (added) at->second = train(tiny(settings), 1);
  return at->second;
}

struct Cut {
  std::string name;
  int ranks;
  Overrides parallel;
  Overrides settings = {};  // also applied to one rank
};

class PipeRanks : public testing::TestWithParam<Cut> {};

TEST_P(PipeRanks, GiveTheBitsOfOneRank) {
  const auto& [name, ranks, parallel, settings] = GetParam();
  const Config config =
      tiny(joined(joined(settings, parallel), {"parallel.pipe=" + std::to_string(ranks)}));
  expect_same_bits(train(config, ranks), on_one_rank(settings), name);
}

Overrides schedule(const std::string& name) { return {"parallel.schedule=" + name}; }
Overrides chunks(int count) {
  return {"parallel.schedule=interleaved", "parallel.virtual_stages=" + std::to_string(count)};
}
const Overrides kTied = {"model.tie_embeddings=true"};

INSTANTIATE_TEST_SUITE_P(
    All, PipeRanks,
    testing::Values(
        Cut{"TwoGpipe", 2, schedule("gpipe")}, Cut{"Two1f1b", 2, schedule("1f1b")},
        Cut{"TwoZeroBubble", 2, schedule("zero_bubble")}, Cut{"TwoInterleaved", 2, chunks(2)},
        Cut{"ThreeGpipe", 3, schedule("gpipe")}, Cut{"Three1f1b", 3, schedule("1f1b")},
        Cut{"ThreeZeroBubble", 3, schedule("zero_bubble")}, Cut{"ThreeInterleaved", 3, chunks(2)},
        Cut{"FourGpipe", 4, schedule("gpipe")}, Cut{"Four1f1b", 4, schedule("1f1b")},
        Cut{"FourZeroBubble", 4, schedule("zero_bubble")},
        Cut{"EightZeroBubble", 8, schedule("zero_bubble")}, Cut{"TwoInFourChunks", 2, chunks(4)},
        Cut{"OneInTwoChunks", 1, chunks(2), kTied},
        Cut{"OneZeroBubble", 1, schedule("zero_bubble"), kTied},
        Cut{"Uneven", 3, {"parallel.stage_layers=1,5,2"}},
        Cut{"UnevenChunks", 2, joined(chunks(2), {"parallel.stage_layers=3,1,1,3"}), kTied},
        Cut{"Tied1f1b", 3, schedule("1f1b"), kTied},
        Cut{"TiedZeroBubble", 2, schedule("zero_bubble"), kTied},
        Cut{"TiedReplicated", 2, {"parallel.zero=0"}, kTied},
        Cut{"RecomputeFull", 2, schedule("zero_bubble"), {"train.recompute=full"}},
        Cut{"RecomputeSelective", 3, schedule("zero_bubble"), {"train.recompute=selective"}},
        Cut{"Bf16", 3, schedule("1f1b"), {"train.precision=bf16", "model.tie_embeddings=true"}},
        Cut{"Bf16ZeroBubble",
            2,
            schedule("zero_bubble"),
            {"train.precision=bf16", "model.tie_embeddings=true"}},
        Cut{"FewMicroBatches", 4, schedule("1f1b"), {"train.micro_batch=3"}},
        Cut{"GlobalBalance", 2, schedule("1f1b"), {"model.moe.aux_scope=global_batch"}},
        Cut{"BiasedRouter",
            2,
            chunks(2),
            {"model.moe.router=sigmoid_bias", "model.moe.bias_rate=0.01"}}),
    [](const auto& info) { return info.param.name; });

// Combined with data and sequence ranks: equal to these alone, within the rounding of sums in
// another order. Experts are chosen as on one rank.
class PipeAndOthers : public testing::TestWithParam<Cut> {};

TEST_P(PipeAndOthers, GiveTheLossesNormsAndWeightsOfOneRank) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  const auto& [name, ranks, parallel, settings] = GetParam();
  const History one = train(tiny(joined(settings, {"run.routing_trace=write:" + file})), 1);
  const History many =
      train(tiny(joined(joined(settings, parallel), {"run.routing_trace=replay:" + file})), ranks);
  expect_same_training(many, one, name);
}

Overrides pipe(int ranks, const Overrides& more) {
  return joined({"parallel.pipe=" + std::to_string(ranks)}, more);
}

INSTANTIATE_TEST_SUITE_P(
    All, PipeAndOthers,
    testing::Values(
        Cut{"Data", 4, pipe(2, schedule("1f1b")), kTied},
        Cut{"DataReplicated", 4, pipe(2, joined(schedule("zero_bubble"), {"parallel.zero=0"})),
            kTied},
        Cut{"Sequence", 4, pipe(2, joined(schedule("zero_bubble"), {"parallel.sequence=2"})),
            kTied},
        Cut{"SequenceChunks", 4, pipe(2, joined(chunks(2), {"parallel.sequence=2"}))},
        Cut{"Tensor", 4, pipe(2, joined(schedule("zero_bubble"), {"parallel.tensor=2"})), kTied},
        Cut{"TensorSequenceChunks", 8,
            pipe(2, joined(chunks(2), {"parallel.tensor=2", "parallel.sequence=2"})), kTied},
        Cut{"Experts",
            4,
            pipe(2, joined(schedule("zero_bubble"), {"parallel.expert=2"})),
            {"model.moe.experts=6"}},
        Cut{"DataSequence", 8, pipe(2, joined(schedule("1f1b"), {"parallel.sequence=2"})), kTied}),
    [](const auto& info) { return info.param.name; });

// The trace of a pipeline is that of one rank, byte for byte.
TEST(Pipeline, ATraceIsWrittenByAllStagesTogether) {
  const ScratchFolder folder;
  train(tiny({"run.routing_trace=write:" + (folder / "one")}), 1);
  train(tiny({"run.routing_trace=write:" + (folder / "pipe"), "parallel.pipe=4"}), 4);
  EXPECT_EQ(get_file(folder / "one"), get_file(folder / "pipe"));
}

using Body = std::function<void(Trainer&, Runtime&, Mesh&)>;

void on_ranks(const Config& config, int ranks, const Body& body,
              const TrainerOptions& options = {}) {
  run_ranks(ranks, [&](ThreadComm& world, Exec&) {
    Runtime runtime(1);
    const Splitter split = [&](int color, int key, const std::string& axis) {
      return world.split(color, key, axis);
    };
    auto mesh = std::make_shared<Mesh>(make_layout(config, world.rank(), ranks), split);
    Trainer trainer(config, runtime, mesh, options);
    trainer.initialize();
    body(trainer, runtime, *mesh);
  });
}

// Written by two stages, read by one rank, four stages and two chunks on each of two, and vice
// versa: the run continues with the same bits.
TEST(Pipeline, ACheckpointIsReadByAnyNumberOfStages) {
  const ScratchFolder folder;
  const std::vector<std::pair<int, Config>> layouts = {
      {1, tiny(kTied)},
      {2, tiny(joined(kTied, pipe(2, schedule("zero_bubble"))))},
      {4, tiny(joined(kTied, pipe(4, schedule("1f1b"))))},
      {2, tiny(joined(kTied, pipe(2, chunks(2))))}};
  const BatchSource source = [&](Pool& pool, int64_t first, int64_t rows) {
    return rule_batch(layouts[0].second, pool, first, rows);
  };
  const History& whole = on_one_rank(kTied);
  for (size_t writer = 0; writer < layouts.size(); ++writer) {
    const std::string place = folder / std::to_string(writer);
    on_ranks(layouts[writer].second, layouts[writer].first,
             [&](Trainer& trainer, Runtime& runtime, Mesh& mesh) {
               for (int64_t s = 0; s < 2; ++s) trainer.step(s, s * 6, source);
               save_checkpoint(runtime.exec(), mesh.hosts(), place,
                               {.step = 2, .updates = trainer.updates()}, trainer.tensors_to_save(),
                               0);
             });
    const FoundCheckpoint found = verify_checkpoint(place + "/step-000000002");
    for (const auto& [ranks, config] : layouts) {
      on_ranks(config, ranks, [&](Trainer& trainer, Runtime&, Mesh&) {
        load_tensors(found, trainer.tensors_to_load(Trainer::State::kEverything));
        trainer.resume(found.manifest.updates);
        trainer.publish();
        EXPECT_EQ(trainer.step(2, 12, source).loss, whole.steps[2].loss);
      });
    }
  }
}

// One stage's weights are not finite: all ranks skip the step.
TEST(Pipeline, StagesSkipAStepTogether) {
  const Config config = tiny(pipe(4, {}));
  on_ranks(config, 4, [&](Trainer& trainer, Runtime&, Mesh&) {
    if (Parameter* norm = trainer.parameters().find("block.2.norm1.weight")) {
      host<float>(norm->master)[5] = std::numeric_limits<float>::quiet_NaN();
      trainer.publish();
    }
    const StepResult result = trainer.step(0, 0, [&](Pool& pool, int64_t first, int64_t rows) {
      return rule_batch(config, pool, first, rows);
    });
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(trainer.updates(), 0);
  });
}

// The message about a failure names the step and the layer, on any stage.
TEST(Pipeline, AFailureInALayerIsPlacedThere) {
  const Config config = tiny(pipe(2, {}));
  for (const std::string phase : {"forward", "backward"}) {
    const TrainerOptions fails{.fault = Fault("1:2:" + phase + ":5")};
    std::string place;
    const Body step = [&](Trainer& trainer, Runtime&, Mesh& mesh) {
      mesh.activity().at(2, "");
      try {
        trainer.step(1, 6, [&](Pool& pool, int64_t first, int64_t rows) {
          return rule_batch(config, pool, first, rows);
        });
      } catch (const Error&) {
        if (mesh.rank() == 1) place = place_text(mesh.activity().now());
        throw;
      }
    };
    EXPECT_THROW(on_ranks(config, 2, step, fails), Error);
    EXPECT_EQ(place, "step 2, " + phase + " of layer 5");
  }
}

// Stages hold only their own layers, except for the tied table.
TEST(Pipeline, WeightsAreSharedOut) {
  const Config config = tiny(joined(kTied, pipe(4, {})));
  on_ranks(config, 4, [&](Trainer& trainer, Runtime&, Mesh& mesh) {
    const int stage = mesh.here()[Axis::kPipe].index;
    for (const Parameter& p : trainer.parameters().all()) {
      const std::string& name = p.spec.name;
      if (name.starts_with("block.")) {
        EXPECT_EQ(std::stoi(name.substr(6)) / 2, stage) << name;
      }
      if (name == "embed.weight") {
        EXPECT_TRUE(stage == 0 || stage == 3);
        EXPECT_EQ(p.spec.held_by, (std::vector<int>{0, 3}));
      }
    }
  });
}

}  // namespace
}  // namespace weft::test
