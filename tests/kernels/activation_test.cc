#include "kernels/gates/activation.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::Activation;

constexpr Activation kAll[] = {Activation::kIdentity, Activation::kRelu,    Activation::kSilu,
                               Activation::kElu1,     Activation::kSigmoid, Activation::kTanh};

double naive(Activation f, double x) {
  switch (f) {
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kSilu: return silu(x);
    case Activation::kElu1: return x > 0 ? x + 1 : std::exp(x);
    case Activation::kSigmoid: return sigmoid(x);
    case Activation::kTanh: return std::tanh(x);
    default: return x;
  }
}

Numbers naive(Activation f, Numbers x) {
  for (double& v : x) v = naive(f, v);
  return x;
}

class Activations : public testing::TestWithParam<Isa> {};

TEST_P(Activations, ApplyTheirFunction) {
  Rig rig(2, GetParam());
  for (const Activation f : kAll) {
    for (const int64_t width : {1, 7, 67}) {
      for (int mix = 0; mix < 4; ++mix) {
        const DType out = kReals[mix / 2];
        const Padded x(rig, "x", 13, width, kReals[mix % 2], 3.0), y(rig, "y", 13, width, out);
        kernels::activation_forward(rig.exec, f, x, y);
        EXPECT_TRUE(Near(y.view(), naive(f, x.numbers()), tolerance(out, 1)));
        EXPECT_TRUE(y.surroundings_kept());
      }
    }
  }
}

TEST_P(Activations, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  for (const Activation f : kAll) {
    for (int mix = 0; mix < 8; ++mix) {
      const DType out = kReals[mix / 4];
      const Padded x(rig, "x", 5, 31, kReals[mix % 2]), dy(rig, "dy", 5, 31, kReals[mix / 2 % 2]);
      const Padded dx(rig, "dx", 5, 31, out);
      kernels::activation_backward(rig.exec, f, x, dy, dx);
      const Numbers want =
          slopes([&](const Numbers& v) { return dot(naive(f, v), dy.numbers()); }, x.numbers());
      EXPECT_TRUE(Near(dx.view(), want, 1e-8 + tolerance(out, 1)));
      EXPECT_TRUE(dx.surroundings_kept());
    }
  }
}

TEST_P(Activations, WorkInPlaceAndOverManyBlocks) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor x = rig.normal("x", {211, 257}), dy = rig.normal("dy", {211, 257});
    kernels::activation_backward(rig.exec, Activation::kSilu, x, dy, dy);
    kernels::activation_forward(rig.exec, Activation::kSilu, x, x);
    return std::pair(numbers(x), numbers(dy));
  };
  const auto one = run(1);
  Rig rig(1, GetParam());
  const Tensor x = rig.normal("x", {211, 257});
  EXPECT_TRUE(Near(one.first, naive(Activation::kSilu, numbers(x)), tolerance(DType::kF32, 1)));
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(Activations, KeepNanAndDoNothingWithoutElements) {
  Rig rig(2, GetParam());
  for (const Activation f : kAll) {
    const Tensor x = rig.normal("x", {9});
    host<float>(x)[4] = std::nanf("");
    kernels::activation_forward(rig.exec, f, x, x);
    EXPECT_TRUE(std::isnan(host<float>(x)[4]));
    kernels::activation_forward(rig.exec, f, rig.exec.empty({0, 4}), rig.exec.empty({0, 4}));
    kernels::activation_backward(rig.exec, f, {}, {}, {});
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Activations, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// gate_up [rows, 2 * width] -> h [rows, width]
Numbers naive_swiglu(const Numbers& gate_up, const Numbers& scale) {
  const size_t rows = scale.size(), width = gate_up.size() / rows / 2;
  Numbers h;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < width; ++i) {
      const double* row = gate_up.data() + r * 2 * width;
      h.push_back(scale[r] * silu(row[i]) * row[width + i]);
    }
  }
  return h;
}

class Swiglu : public testing::TestWithParam<Isa> {};

TEST_P(Swiglu, MultipliesUpByTheGateAndTheScale) {
  Rig rig(2, GetParam());
  const int64_t rows = 17;
  for (const int64_t width : {1, 5, 41}) {
    for (int mix = 0; mix < 8; ++mix) {
      const DType out = kReals[mix / 2 % 2];
      const Padded gate_up(rig, "gu", rows, 2 * width, kReals[mix % 2]);
      const Padded h(rig, "h", rows, width, out);
      const Tensor scale = rig.normal("s", {rows});
      const bool scaled = mix < 4;
      kernels::swiglu_forward(rig.exec, gate_up, scaled ? ConstView(scale) : ConstView{}, h);
      const Numbers factors = scaled ? numbers(scale) : Numbers(rows, 1.0);
      EXPECT_TRUE(Near(h.view(), naive_swiglu(gate_up.numbers(), factors), tolerance(out, 1)));
      EXPECT_TRUE(h.surroundings_kept());
    }
  }
}

TEST_P(Swiglu, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  const int64_t rows = 3;
  for (const int64_t width : {1, 19}) {
    for (int mix = 0; mix < 64; ++mix) {
      const auto type = [&](int bit) { return kReals[mix >> bit & 1]; };
      const Padded gate_up(rig, "gu", rows, 2 * width, type(0));
      const Padded dh(rig, "dh", rows, width, type(1)), h(rig, "h", rows, width, type(3));
      const Padded d_gate_up(rig, "dgu", rows, 2 * width, type(2));
      const Tensor scale = rig.normal("s", {rows}), d_scale = rig.exec.empty({rows});
      const bool scaled = (mix & 16) != 0, again = (mix & 32) != 0;
      kernels::swiglu_backward(rig.exec, gate_up, scaled ? ConstView(scale) : ConstView{}, dh,
                               d_gate_up, scaled ? View(d_scale) : View{},
                               again ? View(h) : View{});
      const Numbers factors = scaled ? numbers(scale) : Numbers(rows, 1.0), g = dh.numbers();
      const Numbers want = slopes(
          [&](const Numbers& v) { return dot(naive_swiglu(v, factors), g); }, gate_up.numbers());
      EXPECT_TRUE(Near(d_gate_up.view(), want, 1e-8 + tolerance(type(2), 1)));
      if (scaled) {
        const Numbers want_scale = slopes(
            [&](const Numbers& v) { return dot(naive_swiglu(gate_up.numbers(), v), g); }, factors);
        EXPECT_TRUE(Near(d_scale, want_scale, 1e-8 + tolerance(DType::kF32, width)));
      }
      if (again) {
        EXPECT_TRUE(
            Near(h.view(), naive_swiglu(gate_up.numbers(), factors), tolerance(type(3), 1)));
      }
      EXPECT_TRUE(d_gate_up.surroundings_kept() && h.surroundings_kept());
    }
  }
}

TEST_P(Swiglu, BackwardMayOverwriteItsInput) {
  Rig rig(2, GetParam());
  for (const DType dtype : kReals) {
    const Tensor gate_up = rig.normal("gu", {301, 2 * 67}, 1.0, dtype);
    const Tensor dh = rig.normal("dh", {301, 67}, 1.0, dtype);
    const Tensor apart = rig.exec.empty({301, 2 * 67}, dtype);
    kernels::swiglu_backward(rig.exec, gate_up, {}, dh, apart, {}, {});
    kernels::swiglu_backward(rig.exec, gate_up, {}, dh, gate_up, {}, {});
    EXPECT_TRUE(SameBits(apart.view(), gate_up.view()));
  }
}

TEST_P(Swiglu, GivesTheSameBitsForAnyThreads) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor gate_up = rig.normal("gu", {701, 2 * 61}), dh = rig.normal("dh", {701, 61});
    const Tensor scale = rig.normal("s", {701}), d_scale = rig.exec.empty({701});
    const Tensor h = rig.exec.empty({701, 61});
    kernels::swiglu_backward(rig.exec, gate_up, scale, dh, gate_up, d_scale, h);
    return std::tuple(numbers(gate_up), numbers(d_scale), numbers(h));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

INSTANTIATE_TEST_SUITE_P(Every, Swiglu, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
