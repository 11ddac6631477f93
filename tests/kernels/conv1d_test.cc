#include "kernels/sequence/conv1d.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::Activation;
using kernels::ShortConv;

Numbers naive(const ShortConv& conv, const Numbers& x, const Numbers& weight, const Numbers& bias) {
  const auto taps = conv.taps;
  const auto channels = static_cast<int64_t>(weight.size()) / taps;
  Numbers y(x.size());
  for (size_t d = 0; d + 1 < conv.documents.size(); ++d) {
    for (int64_t t = conv.documents[d]; t < conv.documents[d + 1]; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double z = bias.empty() ? 0.0 : bias[static_cast<size_t>(c)];
        for (int64_t j = 0; j < taps; ++j) {
          const int64_t from = t - taps + 1 + j;
          if (from < conv.documents[d]) continue;
          z += weight[static_cast<size_t>(c * taps + j)] *
               x[static_cast<size_t>(from * channels + c)];
        }
        y[static_cast<size_t>(t * channels + c)] =
            conv.activation == Activation::kSilu ? silu(z) : z;
      }
    }
  }
  return y;
}

class Conv : public testing::TestWithParam<Isa> {};

// Documents shorter than the taps, an empty one, and one across the border of two row blocks.
constexpr int32_t kDocuments[] = {0, 1, 4, 4, 60, 141};

TEST_P(Conv, SumsTheLastTokensOfTheDocument) {
  Rig rig(2, GetParam());
  for (const int64_t channels : {1, 13}) {
    for (const int64_t taps : {1, 3, 4, 7}) {
      for (int mix = 0; mix < 16; ++mix) {
        const DType out = kReals[mix / 2 % 2];
        const Padded x(rig, "x", 141, channels, kReals[mix % 2]), y(rig, "y", 141, channels, out);
        const Tensor weight = rig.normal("w", {channels, taps}, 0.5),
                     bias = rig.normal("b", {channels});
        const bool biased = (mix & 4) != 0;
        const ShortConv conv{taps, mix < 8 ? Activation::kSilu : Activation::kIdentity, kDocuments};
        kernels::short_conv_forward(rig.exec, conv, x, weight,
                                    biased ? ConstView(bias) : ConstView{}, y);
        const Numbers want =
            naive(conv, x.numbers(), numbers(weight), biased ? numbers(bias) : Numbers{});
        EXPECT_TRUE(Near(y.view(), want, tolerance(out, taps)));
        EXPECT_TRUE(y.surroundings_kept());
      }
    }
  }
}

TEST_P(Conv, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  constexpr int32_t kShort[] = {0, 2, 3, 11};
  for (const int64_t channels : {1, 9}) {
    for (const int64_t taps : {1, 4}) {
      for (int mix = 0; mix < 32; ++mix) {
        const DType out = kReals[mix / 4 % 2];
        const Padded x(rig, "x", 11, channels, kReals[mix % 2]);
        const Padded dy(rig, "dy", 11, channels, kReals[mix / 2 % 2]),
            dx(rig, "dx", 11, channels, out);
        const Tensor weight = rig.normal("w", {channels, taps}, 0.5),
                     bias = rig.normal("b", {channels});
        const Tensor d_weight = rig.normal("dw", {channels, taps}),
                     d_bias = rig.normal("db", {channels});
        const Numbers weight_before = numbers(d_weight), bias_before = numbers(d_bias);
        const bool biased = (mix & 8) != 0;
        const ShortConv conv{taps, mix < 16 ? Activation::kSilu : Activation::kIdentity, kShort};
        kernels::short_conv_backward(rig.exec, conv, x, weight,
                                     biased ? ConstView(bias) : ConstView{}, dy, dx, d_weight,
                                     biased ? View(d_bias) : View{});
        const Numbers b = biased ? numbers(bias) : Numbers{}, w = numbers(weight), g = dy.numbers();
        const Numbers want_weight = plus(
            slopes([&](const Numbers& v) { return dot(naive(conv, x.numbers(), v, b), g); }, w),
            weight_before);
        // A sum of products of g and x may cancel, but its roundings are those of |g| |x|.
        const double terms =
            std::sqrt(dot(g, g) * dot(x.numbers(), x.numbers())) / static_cast<double>(channels);
        const double allowed =
            1e-8 + tolerance(DType::kF32, 11 * taps) * std::max(1.0, terms / largest(want_weight));
        EXPECT_TRUE(Near(
            dx.view(),
            slopes([&](const Numbers& v) { return dot(naive(conv, v, w, b), g); }, x.numbers()),
            1e-8 + tolerance(out, taps)));
        EXPECT_TRUE(Near(d_weight, want_weight, allowed));
        if (biased) {
          EXPECT_TRUE(Near(
              d_bias,
              plus(slopes([&](const Numbers& v) { return dot(naive(conv, x.numbers(), w, v), g); },
                          b),
                   bias_before),
              allowed));
        }
        EXPECT_TRUE(dx.surroundings_kept());
      }
    }
  }
}

TEST_P(Conv, ForwardCrossesBlocks) {
  Rig rig(2, GetParam());
  const Tensor x = rig.normal("x", {141, 263}), y = rig.exec.empty({141, 263});
  const Tensor weight = rig.normal("w", {263, 4});
  const ShortConv conv{.documents = kDocuments};
  kernels::short_conv_forward(rig.exec, conv, x, weight, {}, y);
  EXPECT_TRUE(
      Near(y, naive(conv, numbers(x), numbers(weight), {}), tolerance(DType::kF32, conv.taps)));
}

// Over several blocks, forward is linear without activation, so <dy, conv(v)> = <dx, v> for any v.
TEST_P(Conv, BackwardCrossesBlocks) {
  Rig rig(2, GetParam());
  const Tensor x = rig.normal("x", {141, 263}), dy = rig.normal("dy", {141, 263});
  const Tensor weight = rig.normal("w", {263, 4}), dx = rig.exec.empty({141, 263});
  const Tensor d_weight = rig.exec.zeros({263, 4});
  const ShortConv conv{4, Activation::kIdentity, kDocuments};
  kernels::short_conv_backward(rig.exec, conv, x, weight, {}, dy, dx, d_weight, {});
  const double product = dot(naive(conv, numbers(x), numbers(weight), {}), numbers(dy));
  const double allowed =
      1e-6 * std::sqrt(dot(numbers(x), numbers(x)) * dot(numbers(dy), numbers(dy)));
  EXPECT_NEAR(dot(numbers(dx), numbers(x)), product, allowed);
  EXPECT_NEAR(dot(numbers(d_weight), numbers(weight)), product, allowed);
}

TEST_P(Conv, GivesTheSameBitsForAnyThreads) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor x = rig.normal("x", {141, 263}), dy = rig.normal("dy", {141, 263});
    const Tensor weight = rig.normal("w", {263, 4}), dx = rig.exec.empty({141, 263});
    const Tensor d_weight = rig.exec.zeros({263, 4}), bias = rig.normal("b", {263});
    const Tensor d_bias = rig.exec.zeros({263});
    const ShortConv conv{.documents = kDocuments};
    kernels::short_conv_backward(rig.exec, conv, x, weight, bias, dy, dx, d_weight, d_bias);
    return std::tuple(numbers(dx), numbers(d_weight), numbers(d_bias));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(Conv, ChecksDocumentsAndDoesNothingWithoutTokens) {
  Rig rig(1, GetParam());
  const Tensor x = rig.normal("x", {5, 3}), weight = rig.normal("w", {3, 4});
  constexpr int32_t kWrong[] = {0, 4};
  EXPECT_THROW(kernels::short_conv_forward(rig.exec, {.documents = kWrong}, x, weight, {}, x),
               Error);
  const Tensor none = rig.exec.empty({0, 3}), d_weight = rig.exec.zeros({3, 4});
  constexpr int32_t kNone[] = {0};
  kernels::short_conv_forward(rig.exec, {.documents = kNone}, none, weight, {}, none);
  kernels::short_conv_backward(rig.exec, {.documents = kNone}, none, weight, {}, none, none,
                               d_weight, {});
}

INSTANTIATE_TEST_SUITE_P(Every, Conv, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
