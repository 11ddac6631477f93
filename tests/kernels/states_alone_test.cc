// Scans that are asked for states alone: what sequence ranks send before there are any queries.
#include <gtest/gtest.h>

#include <cmath>

#include "core/host_access.h"
#include "kernels/rows/elementwise.h"
#include "kernels/scan/delta_scan.h"
#include "kernels/scan/diagonal_scan.h"
#include "kernels/scan/momentum_scan.h"
#include "kernels/scan/rank_one_scan.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHeads = 2, kKey = 11, kValue = 19, kTokens = 150;
// Empty, one token, less than a block of 16 rows, more than two chunks.
const std::vector<int32_t> kDocuments = {0, 0, 1, 14, kTokens};
constexpr int64_t kCount = 4;

class StatesAlone : public testing::TestWithParam<DType> {
 protected:
  Tensor rows(const char* name, int64_t width) {
    return rig.normal(name, {kTokens, kHeads * width}, 1.0, GetParam());
  }
  // In (0, 1), and log decays.
  Tensor gate(const char* name, int64_t width, bool logarithm = false) {
    const Tensor g = rig.normal(name, {kTokens, kHeads * width});
    for (int64_t i = 0; i < g.elements(); ++i) {
      float& x = host<float>(g)[i];
      x = 1.0f / (1.0f + std::exp(-x));
      if (logarithm) x = std::log(x) / 4;
    }
    return g;
  }
  Tensor state(const char* name) { return rig.normal(name, {kCount, kHeads, kKey, kValue}); }
  Tensor nothing() { return rig.exec.zeros({kCount, kHeads, kKey, kValue}); }
  // Queries that spoil all they touch.
  Tensor poison() { return rig.normal("q", {kTokens, kHeads * kKey}, std::nan(""), GetParam()); }
  Tensor out() { return rig.exec.empty({kTokens, kHeads * kValue}); }

  Rig rig{1};
};

TEST_P(StatesAlone, OfDiagonalDecays) {
  const Tensor k = rows("k", kKey), v = rows("v", kValue), q = rows("q", kKey), none = poison();
  const Tensor g = gate("g", kKey, true), h = gate("h", kValue, true), before = state("m");
  for (const bool by_key : {true, false}) {
    for (const bool by_value : {false, true}) {
      if (!by_key && !by_value) continue;
      kernels::DiagonalScan scan{.q = q,
                                 .k = k,
                                 .v = v,
                                 .log_decay = {},
                                 .bonus = {},
                                 .documents = kDocuments,
                                 .heads = kHeads,
                                 .kv_heads = kHeads,
                                 .key = kKey,
                                 .value = kValue};
      if (by_key) scan.log_decay = g;
      if (by_value) scan.value_log_decay = h;
      const Tensor read = nothing(), alone = nothing();
      kernels::diagonal_scan_forward(rig.exec, scan, before, out(), read);
      scan.q = none;
      kernels::diagonal_scan_forward(rig.exec, scan, before, {}, alone);
      EXPECT_TRUE(SameBits(alone, read)) << by_key << by_value;
    }
  }
}

TEST_P(StatesAlone, OfTheDeltaRule) {
  const Tensor k = rows("k", kKey), v = rows("v", kValue), q = rows("q", kKey), none = poison();
  const Tensor beta = gate("b", 1), g = gate("g", 1, true), before = state("m");
  kernels::DeltaScan scan{.q = q,
                          .k = k,
                          .v = v,
                          .beta = beta,
                          .log_decay = g,
                          .documents = kDocuments,
                          .heads = kHeads,
                          .qk_heads = kHeads,
                          .key = kKey,
                          .value = kValue};
  const Tensor read = nothing(), alone = nothing();
  kernels::delta_scan_forward(rig.exec, scan, before, out(), read);
  scan.q = none;
  kernels::delta_scan_forward(rig.exec, scan, before, {}, alone);
  EXPECT_TRUE(SameBits(alone, read));
}

TEST_P(StatesAlone, OfDiagonalPlusRankOne) {
  const Tensor k = rows("k", kKey), v = rows("v", kValue), q = rows("q", kKey), none = poison();
  const Tensor g = gate("g", kKey, true), strength = gate("b", 1), before = state("m");
  const Tensor alpha = rows("alpha", kKey), beta = rows("beta", kKey);
  kernels::scale(rig.exec, alpha, 0.1f, alpha);
  for (const bool delta : {true, false}) {
    kernels::RankOneScan scan{.q = q,
                              .k = k,
                              .v = v,
                              .log_decay = g,
                              .alpha = {},
                              .beta = strength,
                              .documents = kDocuments,
                              .heads = kHeads,
                              .key = kKey,
                              .value = kValue};
    if (!delta) scan.alpha = alpha, scan.beta = beta;
    const Tensor read = nothing(), alone = nothing();
    kernels::rank_one_scan_forward(rig.exec, scan, before, out(), read);
    scan.q = none;
    kernels::rank_one_scan_forward(rig.exec, scan, before, {}, alone);
    EXPECT_TRUE(SameBits(alone, read)) << (delta ? "delta" : "general");
  }
}

TEST_P(StatesAlone, OfDescent) {
  const Tensor k = rows("k", kKey), v = rows("v", kValue), q = rows("q", kKey), none = poison();
  const Tensor theta = gate("theta", 1), alpha = gate("alpha", 1), eta = gate("eta", 1);
  kernels::scale(rig.exec, theta, 0.05f, theta);
  const Tensor m = state("m"), s = state("s"), anchor = state("a");
  const std::vector<int32_t> earlier = {0, 3, 0, 5};
  for (const bool momentum : {true, false}) {
    kernels::MomentumScan scan{.q = q,
                               .k = k,
                               .v = v,
                               .theta = theta,
                               .alpha = {},
                               .eta = {},
                               .documents = kDocuments,
                               .before = earlier,
                               .heads = kHeads,
                               .key = kKey,
                               .value = kValue,
                               .mini_batch = 7};
    kernels::MomentumStates before{.m = m, .anchor = anchor};
    if (momentum) scan.alpha = alpha, scan.eta = eta, before.s = s;
    const auto run = [&](View to) {
      std::vector<Tensor> after = {nothing(), nothing(), nothing()};
      kernels::momentum_scan_forward(rig.exec, scan, before, to,
                                     {after[0], momentum ? after[1].view() : View{}, after[2]});
      return after;
    };
    const Tensor to = out();
    const std::vector<Tensor> read = run(to);
    scan.q = none;
    const std::vector<Tensor> alone = run({});
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(SameBits(alone[i], read[i])) << momentum << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StatesAlone, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
