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
}  // namespace
}  // namespace weft::test
