#include "kernels/model/adamw.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::AdamW;

struct Weights {
  Numbers master, m, v;
};

// The published algorithm, with decay decoupled, in double.
void naive(const AdamW& o, const Numbers& grad, Weights& w) {
  const double t = static_cast<double>(o.step);
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = grad[i] * o.grad_scale;
    w.m[i] = o.beta1 * w.m[i] + (1 - o.beta1) * g;
    w.v[i] = o.beta2 * w.v[i] + (1 - o.beta2) * g * g;
    const double m_hat = w.m[i] / (1 - std::pow(o.beta1, t));
    const double v_hat = w.v[i] / (1 - std::pow(o.beta2, t));
    w.master[i] -= o.lr * (m_hat / (std::sqrt(v_hat) + o.epsilon) + o.weight_decay * w.master[i]);
  }
}

class AdamWTest : public testing::TestWithParam<Isa> {};

TEST_P(AdamWTest, FollowsThePublishedAlgorithm) {
  for (const int64_t count : {1, 7, 16384 + 3}) {  // one more than a block, and a tail
    Rig rig(2, GetParam());
    const Tensor master = rig.normal("w", {count}), m = rig.exec.zeros({count});
    const Tensor v = rig.exec.zeros({count}), value = rig.exec.empty({count}, DType::kBF16);
    Weights want{numbers(master), numbers(m), numbers(v)};
    for (int64_t step = 1; step <= 5; ++step) {
      const AdamW options{.lr = 0.01, .weight_decay = 0.1, .grad_scale = 0.3, .step = step};
      const Tensor grad = rig.normal(step % 2 == 0 ? "even" : "odd", {count});
      kernels::adamw(rig.exec, options, master, grad, m, v, value);
      naive(options, numbers(grad), want);
    }
    EXPECT_TRUE(Near(m, want.m, 1e-6));
    EXPECT_TRUE(Near(v, want.v, 1e-6));
    EXPECT_TRUE(Near(master, want.master, 1e-6));
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(host<bf16>(value)[i], to_bf16(host<float>(master)[i]));
    }
  }
}

TEST_P(AdamWTest, KeepsDecayFarBelowTheRoundingOfOne) {
  Rig rig(1, GetParam());
  const Tensor master = rig.exec.empty({3}), zero = rig.exec.zeros({3});
  for (int64_t i = 0; i < 3; ++i) host<float>(master)[i] = 1.0f;
  // Without gradient nothing but the decay moves: 1 - 3e-7 is 5 steps of f32 below 1.
  kernels::adamw(rig.exec, {.lr = 3e-6, .weight_decay = 0.1}, master, zero, rig.exec.zeros({3}),
                 rig.exec.zeros({3}), {});
  EXPECT_EQ(host<float>(master)[1], static_cast<float>(1.0 - 3e-7));
}

TEST_P(AdamWTest, GivesTheSameBitsWithAndWithoutCopyForAnyThreads) {
  const auto run = [&](int threads, bool copy) {
    Rig rig(threads, GetParam());
    const int64_t count = 50021;
    const Tensor master = rig.normal("w", {count}), m = rig.normal("m", {count});
    const Tensor v = rig.exec.zeros({count}), value = rig.exec.empty({count}, DType::kBF16);
    kernels::adamw(rig.exec, {.step = 3}, master, rig.normal("g", {count}), m, v,
                   copy ? View(value) : View{});
    return std::tuple(numbers(master), numbers(m), numbers(v));
  };
  const auto one = run(1, true);
  EXPECT_EQ(one, run(2, true));
  EXPECT_EQ(one, run(3, false));
}

TEST_P(AdamWTest, DoesNothingWithoutParameters) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0});
  kernels::adamw(rig.exec, {}, none, none, none, none, {});
  kernels::adamw(rig.exec, {}, {}, {}, {}, {}, {});
}

INSTANTIATE_TEST_SUITE_P(Every, AdamWTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
