#include "parallel/layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/layout/layout_rules.h"
#include "tests/support/paths.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

Config config_with(const std::vector<std::string>& overrides) {
  return config_from_text(R"(
[model]
hidden = 48
layers = 6
pattern = "LN"
[model.layer.L]
mixer = "retnet"
heads = 4
[model.layer.N]
mixer = "softmax"
heads = 4
[model.moe]
experts = 12
active = 2
ffn = 20
[train]
sequence = 64
global_batch = 48
micro_batch = 2
[run]
dir = "unused"
)",
                          "layout.toml", overrides);
}

TEST(Layout, OfSixteenRanksIsTheTableInTheGoldenFile) {
  const ParallelConfig folded{
      .tensor = 2, .pipe = 2, .sequence = 2, .expert = 4, .expert_tensor = 1};
  const ParallelConfig wide{.tensor = 1, .pipe = 1, .sequence = 4, .expert = 4, .expert_tensor = 2};
  const std::string text = "tensor 2, sequence 2, pipe 2, expert 4\n" + layout_table(folded, 16) +
                           "\nsequence 4, expert 4, expert_tensor 2\n" + layout_table(wide, 16);
  EXPECT_EQ(text, get_file(in_project("tests/golden/layout_16.txt"))) << text;
}

// The groups of any set of axes split the world into parts of equal size, equal for all members.
TEST(Layout, GroupsTileTheWorld) {
  const std::vector<ParallelConfig> cases = {
      {.tensor = 2, .pipe = 3, .sequence = 2, .expert = 2, .expert_tensor = 2},
      {.tensor = 1, .pipe = 1, .sequence = 3, .expert = 2, .expert_tensor = 1},
      {.tensor = 4, .pipe = 2, .sequence = 1, .expert = 1, .expert_tensor = 3}};
  const std::vector<std::vector<Axis>> groups = {
      {Axis::kTensor},
      {Axis::kSequence},
      {Axis::kData},
      {Axis::kPipe},
      {Axis::kData, Axis::kSequence},
      {Axis::kTensor, Axis::kSequence, Axis::kData, Axis::kPipe},
      {Axis::kExpert},
      {Axis::kExpertData},
      {Axis::kExpertTensor},
      {Axis::kExpert, Axis::kExpertTensor},
      {}};
  for (const ParallelConfig& degrees : cases) {
    const int world = 24;
    for (const auto& axes : groups) {
      std::set<std::vector<int>> parts;
      for (int rank = 0; rank < world; ++rank) {
        const Layout layout{degrees, rank, world, coordinates_of(degrees, rank, world)};
        const std::vector<int> group = layout.group(axes);
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        EXPECT_TRUE(std::binary_search(group.begin(), group.end(), rank));
        size_t size = 1;
        for (const Axis axis : axes) size *= static_cast<size_t>(layout.here[axis].size);
        EXPECT_EQ(group.size(), size);
        for (const int other : group) {
          const Coordinates there = coordinates_of(degrees, other, world);
          for (const Axis axis : axes) EXPECT_EQ(there[axis].size, layout.here[axis].size);
        }
        parts.insert(group);
      }
      size_t covered = 0;
      for (const auto& part : parts) covered += part.size();
      EXPECT_EQ(covered, static_cast<size_t>(world)) << "groups overlap";
    }
  }
}

TEST(Layout, StagesHoldAllLayersInOrderAlsoWhenTheyDoNotDivide) {
  for (const int64_t layers : {5, 6, 7, 23}) {
    for (const int chunks : {1, 2}) {
      if (layers < 3 * chunks) continue;
      int64_t next = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int pipe = 0; pipe < 3; ++pipe) {
          const ParallelConfig degrees{.pipe = 3, .virtual_stages = chunks};
          const Layout layout{degrees, pipe, 3, coordinates_of(degrees, pipe, 3)};
          const IndexRange range = layout.stage_layers(layers, chunk);
          EXPECT_EQ(range.begin, next);
          EXPECT_GE(range.size(), 1);
          EXPECT_LE(range.size(), layers / (3 * chunks) + 1);
          next = range.end;
        }
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(Layout, TakesWhatFits) {
  const Layout layout = make_layout(config_with({"parallel.tensor=2", "parallel.expert=3"}), 5, 12);
  EXPECT_EQ(describe(layout.here), "pipe 0, data 2, sequence 0, tensor 1");
  EXPECT_EQ(product_text(layout.here), "tensor 2 x sequence 1 x data 6 x pipe 1 = 12 ranks");
  EXPECT_EQ(layout.here[Axis::kExpert].index, 2);
  EXPECT_EQ(layout.here[Axis::kExpertData].index, 1);
  EXPECT_EQ(layout.micro_batches(24), (IndexRange{8, 12}));
}

struct Wrong {
  const char* name;
  int world;
  std::vector<std::string> overrides;
  std::vector<std::string> parts;  // of the message
};
class LayoutRefuses : public testing::TestWithParam<Wrong> {};

TEST_P(LayoutRefuses, WithTheProductTheRuleAndWhatWorks) {
  const Config config = config_with(GetParam().overrides);
  const std::string message =
      message_of<ConfigError>([&] { make_layout(config, 0, GetParam().world); });
  for (const std::string& part : GetParam().parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n is not in\n" << message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LayoutRefuses,
    testing::Values(
        Wrong{"Product",
              8,
              {"parallel.tensor=2", "parallel.pipe=3"},
              {"tensor 2 x sequence 1 x pipe 3 = 6", "8 ranks", "-n 6 or 12",
               "tensor 2, sequence 1, pipe 2 (data 2)"}},
        // 2^32 and more: as an int these products would be 0.
        Wrong{"HugeProduct",
              3,
              {"parallel.tensor=65536", "parallel.sequence=65536"},
              {"tensor 65536 x sequence 65536 x pipe 1 = 4294967296", "3 ranks", "-n 4294967296",
               "tensor 1, sequence 3, pipe 1 (data 1)"}},
        Wrong{"HugestProduct",
              2,
              {"parallel.tensor=1048576", "parallel.sequence=1048576", "parallel.pipe=1048576"},
              {"= 1152921504606846976", "2 ranks", "tensor 1, sequence 1, pipe 2 (data 1)"}},
        Wrong{"HugeExpertMesh",
              4,
              {"model.moe.experts=65536", "parallel.expert=65536", "parallel.expert_tensor=65536"},
              {"expert 65536 x expert_tensor 65536 = 4294967296", "4 tensor", "expert 4"}},
        Wrong{"Heads", 3, {"parallel.tensor=3"}, {"heads = 4", "3 tensor ranks", "tensor 1"}},
        Wrong{"ExpertMesh",
              4,
              {"parallel.expert=3"},
              {"expert 3 x expert_tensor 1 = 3", "4 tensor", "expert 4"}},
        Wrong{"ExpertWidth", 6, {"parallel.expert_tensor=3"}, {"ffn = 20", "expert_tensor 2"}},
        Wrong{"Layers", 8, {"parallel.pipe=8"}, {"model.layers = 6", "8 stages", "pipe 4"}},
        Wrong{"Chunks",
              4,
              {"parallel.pipe=4", "parallel.schedule=interleaved", "parallel.virtual_stages=1",
               "model.layers=8", "parallel.virtual_stages=2", "train.global_batch=12"},
              {"groups of pipe 4", "6 per data rank", "train.global_batch = 8 or 16"}},
        Wrong{"Sequence", 128, {"parallel.sequence=128"}, {"train.sequence = 64", "sequence 64"}},
        Wrong{"Batch",
              5,
              {},
              {"train.global_batch = 48", "data 5 x train.micro_batch 2 = 10", "40 or 50"}},
        Wrong{"Nothing", 67, {}, {"data 67", "train.global_batch = 134"}}),
    [](const auto& info) { return info.param.name; });

// Layers placed by hand; wrong sums are refused with the config.
TEST(Layout, PlacesLayersAsTheyAreGiven) {
  const Config config = config_with({"parallel.pipe=3", "parallel.stage_layers=1, 4,1"});
  EXPECT_EQ(make_layout(config, 0, 3).stage_layers(6), (IndexRange{0, 1}));
  EXPECT_EQ(make_layout(config, 1, 3).stage_layers(6), (IndexRange{1, 5}));
  EXPECT_EQ(make_layout(config, 2, 3).stage_layers(6), (IndexRange{5, 6}));
  for (const char* wrong : {"1,4", "1,4,2", "1,5,0", "1,4,1,", "one,4,1", "2,2,2,"}) {
    const std::string message = message_of<ConfigError>([&] {
      config_with({"parallel.pipe=3", std::string("parallel.stage_layers=") + wrong});
    });
    EXPECT_NE(message.find("nearest: \"2,2,2\""), std::string::npos) << wrong << ": " << message;
  }
}

// A rule of the layers is applied like others, once for each split.
TEST(Layout, OffersOnlyWhatTheModelTakes) {
  const Config config = config_with({"parallel.tensor=4", "model.layer.L.heads=12",
                                     "model.layer.N.heads=12", "parallel.sequence=2"});
  int asked = 0;
  const PlaceRule model = [&](const Coordinates& here) -> std::string {
    ++asked;
    return here[Axis::kTensor].size > 2 ? "the model's own reason" : "";
  };
  EXPECT_NO_THROW(make_layout(config, 0, 24));
  const std::string message = message_of<ConfigError>([&] { make_layout(config, 0, 24, model); });
  EXPECT_EQ(
      message,
      "command line: parallel: tensor 4 x sequence 2 x data 3 x pipe 1 = 24 ranks: the model's "
      "own reason; layouts of 24 ranks that work: tensor 2, sequence 2, pipe 1 (data 6); "
      "tensor 2, sequence 3, pipe 1 (data 4); tensor 1, sequence 2, pipe 1 (data 12)");
  EXPECT_LE(asked, 6);  // of 1, 2, 3, 4, 6 and 12 tensor ranks
  EXPECT_NO_THROW(make_layout(config_with({"parallel.tensor=2"}), 0, 24, model));
}

TEST(Layout, OfThousandsOfRanksIsRefusedQuickly) {
  const Config config =
      config_with({"parallel.tensor=3", "parallel.expert=7", "model.moe.experts=14"});
  EXPECT_THROW(make_layout(config, 0, 4096), ConfigError);  // searches every layout of 4096 ranks
}

}  // namespace
}  // namespace weft::test
