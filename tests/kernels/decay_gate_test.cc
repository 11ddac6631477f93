#include "kernels/gates/decay_gate.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::DecayGate;

double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

double gate_of(const DecayGate& gate, double z) {
  if (gate.kind == DecayGate::Kind::kMinusExp) return -std::exp(z);
  return std::max(log_sigmoid(z) / gate.divisor, static_cast<double>(gate.floor));
}

TEST(DecayGate, AgreesWithItsFormulaAndItsSlope) {
  const DecayGate gates[] = {
      {.divisor = 16.0f}, {.divisor = 1.0f, .floor = -0.7f}, {.kind = DecayGate::Kind::kMinusExp}};
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const DecayGate& gate : gates) {
        Rig rig(2, isa);
        const Padded z(rig, "z", 5, 37, type, 3.0), dg(rig, "dg", 5, 37, DType::kF32);
        const Padded g(rig, "g", 5, 37, DType::kF32), dz(rig, "dz", 5, 37, type);
        kernels::decay_gate_forward(rig.exec, gate, z, g);
        kernels::decay_gate_backward(rig.exec, gate, z, dg, dz);
        const Numbers at = z.numbers(), cotangent = dg.numbers();
        Numbers want(at.size()), slope(at.size());
        for (size_t i = 0; i < at.size(); ++i) {
          want[i] = gate_of(gate, at[i]);
          slope[i] =
              cotangent[i] * (gate_of(gate, at[i] + 1e-6) - gate_of(gate, at[i] - 1e-6)) / 2e-6;
        }
        EXPECT_TRUE(Near(g.view(), want, tolerance(DType::kF32, 1)));
        EXPECT_TRUE(Near(dz.view(), slope, tolerance(type, 1)));
        EXPECT_TRUE(g.surroundings_kept());
        EXPECT_TRUE(dz.surroundings_kept());
      }
    }
  }
}

// <dg, g> + <dk, k> as a function of (f | lower).
double tied_loss(const Numbers& x, int64_t width, bool bounded, const Numbers& dg,
                 const Numbers& dk) {
  double total = 0;
  for (size_t i = 0; i < dg.size(); ++i) {
    const double lower = bounded ? x[dg.size() + i % width] : 0;
    const double a = lower + (1 - lower) * sigmoid(x[i]);
    total += dg[i] * std::log(a) + dk[i] * (1 - a);
  }
  return total;
}

TEST(TiedGates, AgreeWithTheirFormulasAndSlopes) {
  constexpr int64_t kRows = 7, kWidth = 19;
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const bool bounded : {false, true}) {
        Rig rig(2, isa);
        const Padded f(rig, "f", kRows, kWidth, type, 2.0),
            dg(rig, "dg", kRows, kWidth, DType::kF32);
        const Padded dk(rig, "dk", kRows, kWidth, type), g(rig, "g", kRows, kWidth, DType::kF32);
        const Padded k(rig, "k", kRows, kWidth, type), df(rig, "df", kRows, kWidth, type);
        const Tensor lower = rig.exec.empty({kWidth}), d_lower = rig.exec.zeros({kWidth});
        for (int64_t i = 0; i < kWidth; ++i) {
          host<float>(lower)[i] = 0.9f * static_cast<float>(i + 1) / kWidth;
        }
        const ConstView bound = bounded ? ConstView(lower) : ConstView{};
        kernels::tied_gates_forward(rig.exec, f, bound, g, k);
        kernels::tied_gates_backward(rig.exec,
                                     {f, bound, dg, dk, df, bounded ? d_lower.view() : View{}});
        Numbers x = f.numbers();
        Numbers want_g(x.size()), want_k(x.size());
        for (size_t i = 0; i < x.size(); ++i) {
          const double l = bounded ? host<float>(lower)[i % kWidth] : 0;
          want_k[i] = (1 - l) * sigmoid(-x[i]);
          want_g[i] = bounded ? std::log1p(-want_k[i]) : log_sigmoid(x[i]);
        }
        EXPECT_TRUE(Near(g.view(), want_g, tolerance(DType::kF32, 1)));
        EXPECT_TRUE(Near(k.view(), want_k, tolerance(type, 1)));
        const auto bounds = numbers(lower);
        x.insert(x.end(), bounds.begin(), bounds.end());
        const Numbers c_g = dg.numbers(), c_k = dk.numbers();
        const Numbers want =
            slopes([&](const Numbers& at) { return tied_loss(at, kWidth, bounded, c_g, c_k); }, x);
        const auto cut = want.begin() + kRows * kWidth;
        EXPECT_TRUE(Near(df.view(), Numbers(want.begin(), cut), tolerance(type, 1)));
        EXPECT_TRUE(df.surroundings_kept());
        if (bounded) {
          EXPECT_TRUE(Near(d_lower, Numbers(cut, want.end()), tolerance(DType::kF32, kRows)));
        }
      }
    }
  }
}

TEST(TiedGates, StayFiniteWhereTheSigmoidDoesNot) {
  Rig rig;
  const Tensor f = rig.exec.empty({1, 4}), g = rig.exec.empty({1, 4}), k = rig.exec.empty({1, 4});
  const float extremes[] = {-200.0f, -90.0f, 90.0f, 200.0f};
  std::copy_n(extremes, 4, host<float>(f));
  kernels::tied_gates_forward(rig.exec, f, {}, g, k);
  const Tensor one = rig.normal("one", {1, 4}), df = rig.exec.empty({1, 4});
  kernels::tied_gates_backward(rig.exec, {f, {}, one, one, df, {}});
  EXPECT_TRUE(Near(g, Numbers{-200, -90, 0, 0}, 1e-6));
  EXPECT_TRUE(Near(k, Numbers{1, 1, 0, 0}, 1e-6));
  for (const double x : numbers(df)) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace weft::test
