#include "kernels/gates/phase.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kHeads = 3, kWidth = 7, kAll = kHeads * kWidth;

// As a function of (x | theta): the turned rows, phases summed up per document.
Numbers turned(const Numbers& in, const std::vector<int32_t>& documents) {
  const int64_t tokens = documents.back(), n = tokens * kAll;
  Numbers y(static_cast<size_t>(2 * n));
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    Numbers phase(kAll, 0.0);
    for (int64_t t = documents[d]; t < documents[d + 1]; ++t) {
      for (int64_t c = 0; c < kAll; ++c) {
        phase[c] += in[n + t * kAll + c];
        const int64_t to = 2 * (t * kAll + c / kWidth * kWidth) + c % kWidth;
        y[to] = in[t * kAll + c] * std::cos(phase[c]);
        y[to + kWidth] = in[t * kAll + c] * std::sin(phase[c]);
      }
    }
  }
  return y;
}

// Phases of up to pi carry a rounding of 1.2e-7 per token, which add up like a walk.
constexpr double kWalk = 2e-6;

TEST(Phase, TurnsByTheRunningSumAndBack) {
  const std::vector<int32_t> documents = {0, 1, 1, 12, 30};
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      Rig rig(2, isa);
      const int64_t tokens = documents.back();
      const Padded x(rig, "x", tokens, kAll, type),
          theta(rig, "theta", tokens, kAll, DType::kF32, 3);
      const Padded y(rig, "y", tokens, 2 * kAll, type), dy(rig, "dy", tokens, 2 * kAll, type);
      const Padded dx(rig, "dx", tokens, kAll, type), d_theta(rig, "dt", tokens, kAll, type);
      const Tensor phase = rig.exec.empty({tokens, kAll}), d_phase = rig.exec.zeros({tokens, kAll});
      kernels::running_phase_forward(rig.exec, documents, theta, phase);
      kernels::turn_forward(rig.exec, kHeads, phase, x, y);
      Numbers in = x.numbers();
      const Numbers angles = theta.numbers();
      in.insert(in.end(), angles.begin(), angles.end());
      const double rounding = type == DType::kF32 ? 0 : tolerance(type, 1);
      EXPECT_TRUE(Near(y.view(), turned(in, documents), kWalk + rounding));
      EXPECT_TRUE(y.surroundings_kept());

      kernels::turn_backward(rig.exec, kHeads, {phase, x, dy, dx, d_phase});
      const Tensor d_last = rig.normal("d_last", {4, kAll});
      kernels::running_phase_backward(rig.exec, documents, d_phase, d_last, d_theta);
      Numbers want =
          slopes([&](const Numbers& at) { return dot(turned(at, documents), dy.numbers()); }, in);
      const auto cut = want.begin() + tokens * kAll;
      EXPECT_TRUE(Near(dx.view(), Numbers(want.begin(), cut), kWalk + rounding));
      Numbers sums(cut, want.end());
      for (size_t d = 0; d + 1 < documents.size(); ++d) {
        for (int64_t i = documents[d] * kAll; i < documents[d + 1] * kAll; ++i) {
          sums[i] += host<float>(d_last)[static_cast<int64_t>(d) * kAll + i % kAll];
        }
      }
      EXPECT_TRUE(Near(d_theta.view(), sums, 5 * kWalk + rounding));
      EXPECT_TRUE(dx.surroundings_kept());
      EXPECT_TRUE(d_theta.surroundings_kept());
    }
  }
}

TEST(Phase, WithoutOneRepeatsAndAddsUp) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    const Tensor x = rig.normal("x", {5, kAll}), y = rig.exec.empty({5, 2 * kAll}),
                 dx = rig.exec.empty({5, kAll});
    kernels::turn_forward(rig.exec, kHeads, {}, x, y);
    kernels::turn_backward(rig.exec, kHeads, {{}, {}, y, dx, {}});
    Numbers twice = numbers(x);
    for (double& v : twice) v *= 2;
    EXPECT_TRUE(Near(dx, twice, 0));
  }
}

// A thousand small turns in one direction: many whole turns.
TEST(Phase, StaysExactOverLongDocuments) {
  for (const Isa isa : available_isas()) {
    Rig rig(1, isa);
    constexpr int32_t kTokens = 4096;
    const Tensor theta = rig.exec.empty({kTokens, 1}), phase = rig.exec.empty({kTokens, 1});
    double sum = 0, worst = 0;
    for (int64_t t = 0; t < kTokens; ++t)
      host<float>(theta)[t] = 0.7f + 1e-4f * static_cast<float>(t);
    kernels::running_phase_forward(rig.exec, std::vector<int32_t>{0, kTokens}, theta, phase);
    for (int64_t t = 0; t < kTokens; ++t) {
      sum += host<float>(theta)[t];
      worst = std::max(worst, std::abs(std::remainder(sum - host<float>(phase)[t], 2 * M_PI)));
    }
    // 1.2e-7 per token: 8e-6 if the roundings are independent, 5e-4 if they all agree.
    EXPECT_LT(worst, 1e-4);
  }
}

}  // namespace
}  // namespace weft::test
