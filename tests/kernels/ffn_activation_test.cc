#include "kernels/gates/ffn_activation.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::FfnActivation;

constexpr FfnActivation kAll[] = {FfnActivation::kSwiglu, FfnActivation::kGelu,
                                  FfnActivation::kRelu2};
constexpr FfnActivation kUngated[] = {FfnActivation::kGelu, FfnActivation::kRelu2};

double naive(FfnActivation a, const double* pre, int64_t width, int64_t i) {
  if (a == FfnActivation::kSwiglu) return silu(pre[i]) * pre[width + i];
  if (a == FfnActivation::kGelu) return 0.5 * pre[i] * std::erfc(-pre[i] / std::sqrt(2.0));
  return pre[i] > 0 ? pre[i] * pre[i] : 0.0;
}

Numbers naive(FfnActivation a, const Numbers& pre, const Numbers& scale) {
  const auto rows = static_cast<int64_t>(scale.size());
  const int64_t wide = static_cast<int64_t>(pre.size()) / rows;
  const int64_t width = kernels::gated(a) ? wide / 2 : wide;
  Numbers h;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      h.push_back(scale[r] * naive(a, pre.data() + r * wide, width, i));
    }
  }
  return h;
}

class FfnActivations : public testing::TestWithParam<Isa> {};

TEST_P(FfnActivations, ApplyTheirFunctionAndTheScale) {
  Rig rig(2, GetParam());
  const int64_t rows = 17;
  for (const FfnActivation a : kAll) {
    for (const int64_t width : {1, 5, 41}) {
      for (int mix = 0; mix < 8; ++mix) {
        const DType out = kReals[mix / 2 % 2];
        const Padded pre(rig, "pre", rows, kernels::pre_width(a, width), kReals[mix % 2], 3.0);
        const Padded h(rig, "h", rows, width, out);
        const Tensor scale = rig.normal("s", {rows});
        const bool scaled = mix < 4;
        kernels::ffn_activation_forward(rig.exec, a, pre, scaled ? ConstView(scale) : ConstView{},
                                        h);
        const Numbers factors = scaled ? numbers(scale) : Numbers(rows, 1.0);
        EXPECT_TRUE(Near(h.view(), naive(a, pre.numbers(), factors), tolerance(out, 1)));
        EXPECT_TRUE(h.surroundings_kept());
      }
    }
  }
}

TEST_P(FfnActivations, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  const int64_t rows = 3;
  for (const FfnActivation a : kAll) {
    for (const int64_t width : {1, 19}) {
      for (int mix = 0; mix < 64; ++mix) {
        const auto type = [&](int bit) { return kReals[mix >> bit & 1]; };
        const Padded pre(rig, "pre", rows, kernels::pre_width(a, width), type(0));
        const Padded dh(rig, "dh", rows, width, type(1)), h(rig, "h", rows, width, type(3));
        const Padded d_pre(rig, "dpre", rows, kernels::pre_width(a, width), type(2));
        const Tensor scale = rig.normal("s", {rows}), d_scale = rig.exec.empty({rows});
        const bool scaled = (mix & 16) != 0, again = (mix & 32) != 0;
        kernels::ffn_activation_backward(rig.exec, a,
                                         {.pre = pre,
                                          .scale = scaled ? ConstView(scale) : ConstView{},
                                          .dh = dh,
                                          .d_pre = d_pre,
                                          .d_scale = scaled ? View(d_scale) : View{},
                                          .h = again ? View(h) : View{}});
        const Numbers factors = scaled ? numbers(scale) : Numbers(rows, 1.0), g = dh.numbers();
        const Numbers x = pre.numbers();
        const auto by_pre = [&](const Numbers& v) { return dot(naive(a, v, factors), g); };
        const auto by_scale = [&](const Numbers& v) { return dot(naive(a, x, v), g); };
        EXPECT_TRUE(Near(d_pre.view(), slopes(by_pre, x), 1e-8 + tolerance(type(2), 1)));
        if (scaled) {
          EXPECT_TRUE(
              Near(d_scale, slopes(by_scale, factors), 1e-8 + tolerance(DType::kF32, width)));
        }
        if (again) {
          EXPECT_TRUE(Near(h.view(), naive(a, x, factors), tolerance(type(3), 1)));
        }
        EXPECT_TRUE(d_pre.surroundings_kept() && h.surroundings_kept());
      }
    }
  }
}

TEST_P(FfnActivations, AreExactFarFromZero) {
  Rig rig(1, GetParam());
  const Tensor x = rig.exec.empty({1, 6}), y = rig.exec.empty({1, 6});
  const float far[] = {-3e4f, -50.0f, -5.6f, 5.6f, 50.0f, 3e4f};
  std::copy_n(far, 6, host<float>(x));
  kernels::ffn_activation_forward(rig.exec, FfnActivation::kGelu, x, {}, y);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(host<float>(y)[i], std::max(far[i], 0.0f));
}

TEST_P(FfnActivations, BackwardMayOverwriteItsInputWithAnyThreads) {
  for (const FfnActivation a : kAll) {
    const Shape wide{701, kernels::pre_width(a, 67)};
    for (const DType dtype : kReals) {
      const auto run = [&](int threads, bool in_place) {
        Rig rig(threads, GetParam());
        const Tensor pre = rig.normal("pre", wide, 1.0, dtype);
        const Tensor dh = rig.normal("dh", {701, 67}, 1.0, dtype);
        const Tensor d_pre = in_place ? pre : rig.exec.empty(wide, dtype);
        const Tensor scale = rig.normal("s", {701}), d_scale = rig.exec.empty({701});
        const Tensor h = rig.exec.empty({701, 67});
        kernels::ffn_activation_backward(
            rig.exec, a,
            {.pre = pre, .scale = scale, .dh = dh, .d_pre = d_pre, .d_scale = d_scale, .h = h});
        return std::tuple(numbers(d_pre), numbers(d_scale), numbers(h));
      };
      const auto one = run(1, false);
      EXPECT_EQ(one, run(2, true));
      EXPECT_EQ(one, run(3, true));
    }
  }
}

TEST_P(FfnActivations, KeepNanAndDoNothingWithoutRows) {
  Rig rig(2, GetParam());
  for (const FfnActivation a : kUngated) {
    const Tensor x = rig.normal("x", {1, 9});
    host<float>(x)[4] = std::nanf("");
    kernels::ffn_activation_forward(rig.exec, a, x, {}, x);
    EXPECT_TRUE(std::isnan(host<float>(x)[4]));
    kernels::ffn_activation_forward(rig.exec, a, rig.exec.empty({0, 4}), {},
                                    rig.exec.empty({0, 4}));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, FfnActivations, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
