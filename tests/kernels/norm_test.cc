#include "kernels/rows/norm.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::GateActivation;
using kernels::HeadNorm;

constexpr double kEpsilon = 1e-5;

double gate_of(GateActivation gate, double g) {
  if (gate == GateActivation::kNone) return 1.0;
  return gate == GateActivation::kSilu ? silu(g) : sigmoid(g);
}

// x, gate: [rows, heads * width]; an empty gate is none. weight: [width] or [heads * width].
struct NaiveHeadNorm {
  int64_t heads = 1, width = 0;
  GateActivation gate = GateActivation::kNone;

  Numbers inv_rms(const Numbers& x) const {
    Numbers out;
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(width)) {
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += std::pow(x[at + static_cast<size_t>(i)], 2);
      out.push_back(1.0 / std::sqrt(squares / static_cast<double>(width) + kEpsilon));
    }
    return out;
  }
  Numbers operator()(const Numbers& x, const Numbers& g, const Numbers& weight) const {
    const Numbers inverse = inv_rms(x);
    Numbers y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = x[i] * inverse[i / static_cast<size_t>(width)] * weight[i % weight.size()];
      if (gate != GateActivation::kNone) y[i] *= gate_of(gate, g[i]);
    }
    return y;
  }
};

// The largest of the two terms whose difference is dx: at width 1 hardly anything is left of them,
// but their rounding is.
double cancellation(const NaiveHeadNorm& naive, const Numbers& dy, const Numbers& x,
                    const Numbers& weight) {
  const Numbers inverse = naive.inv_rms(x);
  Numbers terms(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    terms[i] = dy[i] * weight[i % weight.size()] * inverse[i / static_cast<size_t>(naive.width)];
  }
  return largest(terms);
}

class RmsNorm : public testing::TestWithParam<Isa> {};

TEST_P(RmsNorm, ScalesRowsToUnitRms) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 7, 64, 131, 1031}) {
    for (const DType in : kReals) {
      for (const DType out : kReals) {
        const int64_t rows = 37;
        const Padded x(rig, "x", rows, width, in), y(rig, "y", rows, width, out);
        const Tensor weight = rig.normal("w", {width}), inv_rms = rig.exec.empty({rows});
        kernels::rms_norm_forward(rig.exec, x, weight, kEpsilon, y, inv_rms);
        const NaiveHeadNorm naive{.heads = 1, .width = width};
        EXPECT_TRUE(Near(y.view(), naive(x.numbers(), {}, numbers(weight)), tolerance(out, width)));
        EXPECT_TRUE(Near(inv_rms, naive.inv_rms(x.numbers()), tolerance(DType::kF32, width)));
        EXPECT_TRUE(y.surroundings_kept());
      }
    }
  }
}

TEST_P(RmsNorm, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 13, 37}) {
    for (int mix = 0; mix < 24; ++mix) {
      const int64_t rows = 5;
      const DType dy_type = kReals[mix % 2], x_type = kReals[mix / 2 % 2];
      const DType dx_type = kReals[mix / 4 % 2];
      const Padded dy(rig, "dy", rows, width, dy_type), x(rig, "x", rows, width, x_type);
      const Padded dx(rig, "dx", rows, width, dx_type);
      const Padded residual(rig, "r", rows, width, kReals[mix / 16]);
      const bool with_residual = mix >= 8;
      const Tensor weight = rig.normal("w", {width}), d_weight = rig.normal("dw", {width});
      const Numbers before = numbers(d_weight);
      const Tensor inv_rms = rig.exec.empty({rows});
      kernels::rms_norm_forward(rig.exec, x, weight, kEpsilon,
                                Padded(rig, "y", rows, width, x_type), inv_rms);
      kernels::rms_norm_backward(rig.exec, dy, x, weight, inv_rms,
                                 with_residual ? ConstView(residual) : ConstView{}, dx, d_weight);
      const NaiveHeadNorm naive{.heads = 1, .width = width};
      const Numbers w = numbers(weight), g = dy.numbers();
      Numbers want = slopes([&](const Numbers& v) { return dot(naive(v, {}, w), g); }, x.numbers());
      if (with_residual) want = plus(want, residual.numbers());
      const double allowed =
          tolerance(dx_type, width) +
          cancellation(naive, dy.numbers(), x.numbers(), w) / largest(want) * 2e-6;
      EXPECT_TRUE(Near(dx.view(), want, allowed));
      const Numbers dw =
          slopes([&](const Numbers& v) { return dot(naive(x.numbers(), {}, v), g); }, w);
      EXPECT_TRUE(Near(d_weight, plus(dw, before), tolerance(DType::kF32, width)));
      EXPECT_TRUE(dx.surroundings_kept());
    }
  }
}

TEST_P(RmsNorm, ResidualMayBeTheGradientItself) {
  Rig rig(2, GetParam());
  const Tensor dy = rig.normal("dy", {19, 53}), x = rig.normal("x", {19, 53});
  const Tensor residual = rig.normal("r", {19, 53}), in_place = rig.normal("r", {19, 53});
  const Tensor weight = rig.normal("w", {53}), inv_rms = rig.exec.empty({19});
  const Tensor dx = rig.exec.empty({19, 53}), y = rig.exec.empty({19, 53});
  kernels::rms_norm_forward(rig.exec, x, weight, kEpsilon, y, inv_rms);
  kernels::rms_norm_backward(rig.exec, dy, x, weight, inv_rms, residual, dx, rig.exec.zeros({53}));
  kernels::rms_norm_backward(rig.exec, dy, x, weight, inv_rms, in_place, in_place,
                             rig.exec.zeros({53}));
  EXPECT_TRUE(SameBits(dx.view(), in_place.view()));
}

TEST_P(RmsNorm, GivesTheSameBitsForAnyThreads) {
  const int64_t rows = 1303, width = 67;  // several blocks, the last one short
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor dy = rig.normal("dy", {rows, width}), x = rig.normal("x", {rows, width});
    const Tensor weight = rig.normal("w", {width}), inv_rms = rig.exec.empty({rows});
    const Tensor y = rig.exec.empty({rows, width}), d_weight = rig.exec.zeros({width});
    kernels::rms_norm_forward(rig.exec, x, weight, kEpsilon, y, inv_rms);
    kernels::rms_norm_backward(rig.exec, dy, x, weight, inv_rms, {}, y, d_weight);
    return std::pair(numbers(y), numbers(d_weight));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(RmsNorm, DoesNothingWithoutRows) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0, 8}), weight = rig.normal("w", {8});
  const Tensor d_weight = rig.exec.zeros({8});
  kernels::rms_norm_forward(rig.exec, none, weight, kEpsilon, none, rig.exec.empty({0}));
  kernels::rms_norm_backward(rig.exec, none, none, weight, rig.exec.empty({0}), {}, none, d_weight);
  kernels::rms_norm_forward(rig.exec, {}, weight, kEpsilon, {}, {});
  EXPECT_TRUE(SameBits(d_weight.view(), rig.exec.zeros({8}).view()));
}

INSTANTIATE_TEST_SUITE_P(Every, RmsNorm, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class HeadNorms : public testing::TestWithParam<Isa> {};
constexpr GateActivation kGates[] = {GateActivation::kNone, GateActivation::kSilu,
                                     GateActivation::kSigmoid};

TEST_P(HeadNorms, NormalizesEachHeadAndGatesIt) {
  Rig rig(2, GetParam());
  const int64_t rows = 11, heads = 3;
  for (const int64_t width : {1, 7, 29}) {
    for (const GateActivation gate : kGates) {
      for (int mix = 0; mix < 16; ++mix) {
        const DType out = kReals[mix / 4 % 2];
        const Padded x(rig, "x", rows, heads * width, kReals[mix % 2]);
        const Padded g(rig, "g", rows, heads * width, kReals[mix / 2 % 2]);
        const Padded y(rig, "y", rows, heads * width, out);
        const Tensor weight = rig.normal("w", {mix < 8 ? width : heads * width});
        const Tensor inv_rms = rig.exec.empty({rows, heads});
        const bool gated = gate != GateActivation::kNone;
        const HeadNorm norm{.heads = heads, .epsilon = kEpsilon, .gate = gate};
        kernels::head_norm_forward(rig.exec, norm, x, gated ? ConstView(g) : ConstView{}, weight, y,
                                   inv_rms);
        const NaiveHeadNorm naive{heads, width, gate};
        EXPECT_TRUE(Near(y.view(), naive(x.numbers(), g.numbers(), numbers(weight)),
                         tolerance(out, width)));
        EXPECT_TRUE(Near(inv_rms, naive.inv_rms(x.numbers()), tolerance(DType::kF32, width)));
        EXPECT_TRUE(y.surroundings_kept());
      }
    }
  }
}

struct HeadGradients {
  Numbers dx, d_gate, d_weight;
};

HeadGradients naive_gradients(const NaiveHeadNorm& naive, const Numbers& dy, const Numbers& x,
                              const Numbers& g, const Numbers& w) {
  return {slopes([&](const Numbers& v) { return dot(naive(v, g, w), dy); }, x),
          slopes([&](const Numbers& v) { return dot(naive(x, v, w), dy); }, g),
          slopes([&](const Numbers& v) { return dot(naive(x, g, v), dy); }, w)};
}

TEST_P(HeadNorms, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  const int64_t rows = 3, heads = 3, width = 11;
  for (const GateActivation gate : kGates) {
    for (int mix = 0; mix < 64; ++mix) {
      const auto matrix = [&](std::string_view name, int bit) {
        return Padded(rig, name, rows, heads * width, kReals[mix >> bit & 1]);
      };
      const Padded dy = matrix("dy", 0), x = matrix("x", 1), g = matrix("g", 2);
      const Padded dx = matrix("dx", 3), d_gate = matrix("dg", 4);
      const Tensor weight = rig.normal("w", {mix < 32 ? width : heads * width});
      const Tensor d_weight = rig.normal("dw", weight.shape());
      const Numbers before = numbers(d_weight);
      const Tensor inv_rms = rig.exec.empty({rows, heads});
      const HeadNorm norm{.heads = heads, .epsilon = kEpsilon, .gate = gate};
      const bool gated = gate != GateActivation::kNone;
      const ConstView gate_view = gated ? ConstView(g) : ConstView{};
      kernels::head_norm_forward(rig.exec, norm, x, gate_view, weight, matrix("y", 3), inv_rms);
      kernels::head_norm_backward(rig.exec, norm, dy, x, gate_view, weight, inv_rms, dx,
                                  gated ? View(d_gate) : View{}, d_weight);
      const HeadGradients want = naive_gradients({heads, width, gate}, dy.numbers(), x.numbers(),
                                                 g.numbers(), numbers(weight));
      const auto allowed = [&](const Padded& p) {
        return 1e-8 + 4 * tolerance(p.view().dtype, width);
      };
      EXPECT_TRUE(Near(dx.view(), want.dx, allowed(dx)));
      if (gated) {
        EXPECT_TRUE(Near(d_gate.view(), want.d_gate, allowed(d_gate)));
      }
      EXPECT_TRUE(
          Near(d_weight, plus(want.d_weight, before), tolerance(DType::kF32, width * rows)));
      EXPECT_TRUE(dx.surroundings_kept() && d_gate.surroundings_kept());
    }
  }
}

TEST_P(HeadNorms, GiveTheSameBitsForAnyThreads) {
  const int64_t rows = 701, heads = 4, width = 33;
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor dy = rig.normal("dy", {rows, heads * width}), x = rig.normal("x", dy.shape());
    const Tensor g = rig.normal("g", dy.shape()), d_gate = rig.exec.empty(dy.shape());
    const Tensor weight = rig.normal("w", {width}), inv_rms = rig.exec.empty({rows, heads});
    const Tensor y = rig.exec.empty(dy.shape()), d_weight = rig.exec.zeros({width});
    const HeadNorm norm{.heads = heads, .gate = GateActivation::kSilu};
    kernels::head_norm_forward(rig.exec, norm, x, g, weight, y, inv_rms);
    kernels::head_norm_backward(rig.exec, norm, dy, x, g, weight, inv_rms, y, d_gate, d_weight);
    return std::tuple(numbers(y), numbers(d_gate), numbers(d_weight));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(HeadNorms, RefuseAGateWithoutActivation) {
  Rig rig(1, GetParam());
  const Tensor x = rig.normal("x", {2, 6}), weight = rig.normal("w", {3});
  EXPECT_THROW(kernels::head_norm_forward(rig.exec, {.heads = 2}, x, x, weight,
                                          rig.exec.empty({2, 6}), rig.exec.empty({2, 2})),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Every, HeadNorms, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
