#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/host_access.h"
#include "launcher/bench/bench_routing.h"
#include "tests/support/program.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

constexpr RoutingShape kPaper{2048, 64, 8};

TEST(BenchRouting, BalancedGivesEveryExpertTheSame) {
  Rig rig;
  EXPECT_EQ(max_over_mean(balanced_routing(rig.exec, kPaper)), 1.0);
  const Routing odd = balanced_routing(rig.exec, {101, 7, 3});
  for (size_t e = 0; e < 7; ++e) {
    const int64_t rows = odd.order.offsets[e + 1] - odd.order.offsets[e];
    EXPECT_TRUE(rows == 303 / 7 || rows == 303 / 7 + 1) << rows;
  }
}

TEST(BenchRouting, SkewedFillsSomeExpertsTwoToThreeTimesTheMean) {
  Rig rig;
  const double load = max_over_mean(skewed_routing(rig.exec, kPaper));
  EXPECT_GT(load, 2.0);
  EXPECT_LT(load, 3.0);
  EXPECT_LT(max_over_mean(skewed_routing(rig.exec, kPaper, 0.0)), 1.3);  // chance alone
}

TEST(BenchRouting, SendsATokenToAnExpertOnce) {
  Rig rig;
  const Routing routing = skewed_routing(rig.exec, {37, 9, 9});
  for (int64_t n = 0; n < 37; ++n) {
    const int32_t* row = host<int32_t>(routing.index) + n * 9;
    EXPECT_EQ(std::set<int32_t>(row, row + 9).size(), 9u);
  }
  EXPECT_THROW(skewed_routing(rig.exec, {37, 8, 9}), ConfigError);
}

TEST(BenchMoe, WritesEveryWayAndRatio) {
  const ScratchFolder folder;
  const Outcome outcome =
      run_weft({"bench", "moe", "--tokens", "17", "--hidden", "24", "--experts", "5", "--active",
                "2", "--width", "10", "--repetitions", "1", "--json", folder / "moe.json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto result = nlohmann::json::parse(get_file(folder / "moe.json"));
  const auto& size = result.at("sizes").at(0);
  for (const char* way : {"grouped", "loop", "block_sparse"}) {
    EXPECT_GT(size.at("ways").at(way).at("both_ms").at("median").get<double>(), 0.0);
    EXPECT_GT(size.at("ways").at(way).at("forward_share_of_gemm").get<double>(), 0.0);
  }
  EXPECT_GT(size.at("loop_over_grouped").at("forward").at("median").get<double>(), 0.0);
  EXPECT_GT(size.at("imbalance").at("both").at("median").get<double>(), 0.0);
}

TEST(BenchMoe, RefusesMoreActiveThanExperts) {
  const Outcome outcome = run_weft({"bench", "moe", "--experts", "4", "--active", "5", "--hidden",
                                    "8", "--width", "8", "--tokens", "4"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("nearest: 4"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace weft::test
