// Refusals of layouts that do not fit: `weft train` in the environment of one of several ranks,
// without mpirun. MPI could not start there, so the refusal must come before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "layers/mixers/registry.h"
#include "layers/model_stage.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/rank_training.h"

namespace weft::test {
namespace {

// The environment of mpirun's first rank.
class PretendRanks {
 public:
  explicit PretendRanks(int ranks) {
    setenv("OMPI_COMM_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  }
  ~PretendRanks() {
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
  }
};

constexpr const char* kModel = R"(
[model]
vocab = 64
hidden = 48
layers = 4
pattern = "LN"
[model.layer.L]
mixer = "retnet"
heads = 12
[model.layer.N]
mixer = "softmax"
heads = 12
[model.moe]
experts = 12
active = 2
ffn = 20
[train]
sequence = 16
global_batch = 48
micro_batch = 1
[data]
train = ["no such data"]
[run]
dir = "unused"
)";

struct Mistake {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
  std::vector<std::string> parts;  // of the message
};

class Refuses : public testing::TestWithParam<Mistake> {};

TEST_P(Refuses, BeforeMpiWithTheProductTheRuleAndWhatWorks) {
  const auto& [name, ranks, overrides, parts] = GetParam();
  const ScratchFolder folder;
  put_file(folder / "model.toml", kModel);
  std::vector<std::string> arguments = {"train", folder / "model.toml"};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  const PretendRanks pretend(ranks);
  const Outcome o = run_weft(arguments);
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_EQ(o.out, "");
  for (const std::string& part : parts) {
    EXPECT_NE(o.err.find(part), std::string::npos) << part << "\n is not in\n" << o.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Refuses,
    testing::Values(
        Mistake{"Product",
                3,
                {"parallel.tensor=2"},
                {"tensor 2 x sequence 1 x pipe 1 = 2", "the 3 ranks that were started", "-n 2 or 4",
                 "tensor 3, sequence 1, pipe 1 (data 1)"}},
        Mistake{"HugeProduct",
                3,
                {"parallel.tensor=65536", "parallel.sequence=65536"},
                {"= 4294967296", "tensor 1, sequence 3, pipe 1 (data 1)"}},
        Mistake{"Heads",
                8,
                {"parallel.tensor=8"},
                {"tensor 8 x sequence 1 x data 1 x pipe 1 = 8 ranks", "heads = 12",
                 "8 tensor ranks", "tensor 4, sequence 1, pipe 1 (data 2)"}},
        Mistake{"Experts",
                8,
                {"parallel.expert=8"},
                {"parallel.expert = 8 does not divide model.moe.experts = 12", "nearest: 6"}},
        Mistake{"ExpertMesh",
                8,
                {"parallel.expert=3"},
                {"tensor 1 x sequence 1 x data 8 x pipe 1 = 8 ranks",
                 "expert 3 x expert_tensor 1 = 3 does not divide the 8",
                 "tensor 1, sequence 1, pipe 1, expert 4 (data 8)"}},
        Mistake{"ExpertWidth",
                6,
                {"parallel.expert_tensor=3"},
                {"model.moe.ffn = 20 cannot be cut over 3 expert_tensor ranks",
                 "expert_tensor 2 (data 6)"}},
        Mistake{"Layers",
                8,
                {"parallel.pipe=8"},
                {"tensor 1 x sequence 1 x data 1 x pipe 8 = 8 ranks", "model.layers = 4",
                 "8 stages", "pipe 4 (data 2)"}},
        Mistake{"Sequence",
                24,
                {"parallel.sequence=24"},
                {"train.sequence = 16", "24 sequence ranks", "sequence 12"}},
        Mistake{"Batch",
                5,
                {},
                {"tensor 1 x sequence 1 x data 5 x pipe 1 = 5 ranks", "train.global_batch = 48",
                 "nearest: train.global_batch = 45 or 50"}},
        // A rule of the mixer: only layouts that it supports are offered.
        Mistake{"KvHeads",
                6,
                {"parallel.tensor=6", "model.layer.N.kv_heads=4"},
                {"tensor 6 x sequence 1 x data 1 x pipe 1 = 6 ranks",
                 "model.layer.N.kv_heads = 4 cannot be cut over parallel.tensor = 6",
                 "layouts of 6 ranks that work: tensor 2, sequence 1, pipe 1 (data 3); "
                 "tensor 1, sequence 1, pipe 1 (data 6)\n"}},
        Mistake{"Groups",
                6,
                {"parallel.tensor=3", "model.layer.L.mixer=mamba2", "model.layer.L.groups=4"},
                {"tensor 3 x sequence 1 x data 2 x pipe 1 = 6 ranks",
                 "model.layer.L.groups = 4 cannot be cut over parallel.tensor = 3",
                 "layouts of 6 ranks that work: tensor 2, sequence 1, pipe 1 (data 3); "
                 "tensor 1, sequence 1, pipe 1 (data 6)\n"}}),
    [](const auto& info) { return info.param.name; });

// A mistake of the model itself, on any number of ranks.
TEST(LayoutRefusals, OfferNoLayoutWhereNoneWouldHelp) {
  const ScratchFolder folder;
  put_file(folder / "model.toml", kModel);
  const PretendRanks pretend(2);
  const Outcome o = run_weft({"train", folder / "model.toml", "model.layer.N.kv_heads=5"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("kv_heads = 5 does not divide heads = 12"), std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("layouts of"), std::string::npos) << o.err;
}

// For any number of tensor ranks, a mixer accepts or refuses with a reason; it never fails.
TEST(LayoutRefusals, OfMixersAreTheUsersMistakeUnderAnyTensorDegree) {
  for (const MixerInfo& mixer : mixer_list()) {
    const bool heads =
        std::any_of(mixer.options.begin(), mixer.options.end(),
                    [](const FieldInfo& field) { return std::string(field.name) == "heads"; });
    const Config config = tiny_config(fmt::format(R"(
[model]
vocab = 61
hidden = 48
layers = 1
pattern = "M"
[model.layer.M]
mixer = "{}"
{}
)",
                                                  mixer.name, heads ? "heads = 12" : ""));
    for (int tensor = 1; tensor <= 13; ++tensor) {
      Coordinates here;
      here[Axis::kTensor].size = tensor;
      try {
        ParameterStore store(here);
        ModelStage(config.model, Recompute::kNone, DType::kF32, store);
      } catch (const ConfigError&) {
        EXPECT_GT(tensor, 1) << mixer.name;
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
