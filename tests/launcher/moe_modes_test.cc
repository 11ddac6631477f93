// The golden cases with experts in every implementation, and a config that selects each.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/config/run_config.h"
#include "launcher/app/unsupported.h"
#include "launcher/verify/golden.h"
#include "tests/support/paths.h"

namespace weft::test {
namespace {

constexpr ExpertMode kModes[] = {ExpertMode::kGrouped, ExpertMode::kLoop, ExpertMode::kBlockSparse};

TEST(MoeModes, AgreeWithEveryGoldenCase) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(in_project("tests/golden"))) {
    const std::string name = entry.path().stem().string();
    if (!name.starts_with("moe_") || entry.path().extension() != ".safetensors") continue;
    ++cases;
    for (const DType precision : {DType::kF32, DType::kBF16}) {
      GoldenCase golden(entry.path().string(), precision);
      for (const ExpertMode mode : kModes) {
        golden.expert_mode = mode;
        Runtime runtime(2);
        const Comparison compare = run_golden(runtime, golden, default_tolerance(precision));
        EXPECT_TRUE(compare.passed()) << name << ", mode " << static_cast<int>(mode) << ": "
                                      << compare.worst_key() << ": " << compare.worst();
        EXPECT_GE(compare.compared(), 3);
      }
    }
  }
  EXPECT_GT(cases, 0);
}

TEST(MoeModes, AreAcceptedInConfigs) {
  for (const char* compute : {"grouped", "loop", "block_sparse"}) {
    for (const char* activation : {"swiglu", "gelu", "relu2"}) {
      const Config config =
          config_from_text("model.pattern = \"N\"\nmodel.layer.N.ffn = \"moe\"", "modes.toml",
                           {fmt::format("model.moe.compute={}", compute),
                            fmt::format("model.moe.activation={}", activation)});
      EXPECT_NO_THROW(refuse_unbuilt(config));
      EXPECT_EQ(config.model.moe.activation, activation);
    }
  }
}

}  // namespace
}  // namespace weft::test
