// Short convolutions and token shifts that continue from what came before a document's span.
#include "kernels/sequence/conv1d.h"
#include "kernels/sequence/token_shift.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::Activation;
using kernels::ShortConv;
using kernels::TokenShift;

struct Results {
  Numbers y, leaving;
};
double loss(const Results& r, const Results& gradients) {
  return dot(r.y, gradients.y) + dot(r.leaving, gradients.leaving);
}

// Every document with its history written before it: each row is then like any other.
Numbers joined(const Numbers& history, const Numbers& x, std::span<const int32_t> documents,
               size_t d, int64_t rows, int64_t width) {
  const auto h = history.begin() + static_cast<int64_t>(d) * rows * width;
  Numbers all(h, h + rows * width);
  all.insert(all.end(), x.begin() + documents[d] * width, x.begin() + documents[d + 1] * width);
  return all;
}

Results naive_conv(const ShortConv& conv, const Numbers& x, const Numbers& history,
                   const Numbers& weight) {
  Results r;
  const int64_t taps = conv.taps, channels = static_cast<int64_t>(weight.size()) / taps;
  for (size_t d = 0; d + 1 < conv.documents.size(); ++d) {
    const Numbers all = joined(history, x, conv.documents, d, taps - 1, channels);
    const int64_t tokens = conv.documents[d + 1] - conv.documents[d];
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double z = 0;
        for (int64_t j = 0; j < taps; ++j) z += weight[c * taps + j] * all[(t + j) * channels + c];
        r.y.push_back(conv.activation == Activation::kSilu ? silu(z) : z);
      }
    }
    r.leaving.insert(r.leaving.end(), all.end() - (taps - 1) * channels, all.end());
  }
  return r;
}

Results naive_shift(const TokenShift& shift, const Numbers& x, const Numbers& history,
                    const Numbers& logits, int64_t width) {
  Results r;
  const int64_t channels = shift.heads * width;
  for (size_t d = 0; d + 1 < shift.documents.size(); ++d) {
    const Numbers all = joined(history, x, shift.documents, d, 1, channels);
    const int64_t begin = shift.documents[d], tokens = shift.documents[d + 1] - begin;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        const double a = sigmoid(logits[(begin + t) * shift.heads + c / width]);
        r.y.push_back(a * all[t * channels + c] + (1 - a) * all[(t + 1) * channels + c]);
      }
    }
    r.leaving.insert(r.leaving.end(), all.end() - channels, all.end());
  }
  return r;
}

class Histories : public testing::TestWithParam<Isa> {};

// Empty documents at both ends and between, documents shorter than any history and as long as one,
// and one across two blocks of rows.
constexpr int32_t kDocuments[] = {0, 0, 1, 4, 4, 6, 12, 90, 90};
constexpr int64_t kCount = 8, kTokens = 90;
constexpr int32_t kShort[] = {0, 0, 1, 4, 4, 6, 11, 11};
constexpr int64_t kShortCount = 7, kShortTokens = 11;

TEST_P(Histories, EnterAndLeaveAConvolution) {
  Rig rig(2, GetParam());
  for (const int64_t channels : {1, 13, 263}) {
    for (const int64_t taps : {1, 2, 4, 7}) {
      for (int mix = 0; mix < 8; ++mix) {
        const DType type = kReals[mix % 2], kept = kReals[mix / 2 % 2];
        const ShortConv conv{taps, mix < 4 ? Activation::kSilu : Activation::kIdentity, kDocuments};
        const Padded x(rig, "x", kTokens, channels, type), y(rig, "y", kTokens, channels, type);
        const Padded entering(rig, "h", kCount * (taps - 1), channels, kept);
        const Padded leaving(rig, "l", kCount * (taps - 1), channels, kept);
        const Tensor weight = rig.normal("w", {channels, taps}, 0.5);
        kernels::short_conv_forward(rig.exec, conv, x, weight, {}, y, {entering, leaving});
        const Results want = naive_conv(conv, x.numbers(), entering.numbers(), numbers(weight));
        EXPECT_TRUE(Near(y.view(), want.y, tolerance(type, taps)));
        EXPECT_TRUE(Near(leaving.view(), want.leaving, tolerance(kept, 1)));
        EXPECT_TRUE(y.surroundings_kept());
        EXPECT_TRUE(leaving.surroundings_kept());
      }
    }
  }
}

TEST_P(Histories, OfAConvolutionHaveGradients) {
  Rig rig(2, GetParam());
  for (const int64_t channels : {1, 9}) {
    for (const int64_t taps : {2, 4, 7}) {
      for (int mix = 0; mix < 8; ++mix) {
        const DType type = kReals[mix % 2], kept = kReals[mix / 2 % 2];
        const ShortConv conv{taps, mix < 4 ? Activation::kSilu : Activation::kIdentity, kShort};
        const int64_t rows = kShortCount * (taps - 1);
        const Padded x(rig, "x", kShortTokens, channels, type);
        const Padded dy(rig, "dy", kShortTokens, channels, type);
        const Padded dx(rig, "dx", kShortTokens, channels, type);
        const Padded entering(rig, "h", rows, channels, kept);
        const Padded d_leaving(rig, "dl", rows, channels, kept);
        const Padded d_entering(rig, "dh", rows, channels, kept);
        const Tensor weight = rig.normal("w", {channels, taps}, 0.5);
        const Tensor d_weight = rig.exec.zeros({channels, taps});
        kernels::short_conv_backward(rig.exec, conv, x, weight, {}, dy, dx, d_weight, {},
                                     {entering, d_leaving, d_entering});
        const Results g{dy.numbers(), d_leaving.numbers()};
        const Numbers in = x.numbers(), h = entering.numbers(), w = numbers(weight);
        const auto of = [&](const Numbers& a, const Numbers& b, const Numbers& c) {
          return loss(naive_conv(conv, a, b, c), g);
        };
        EXPECT_TRUE(Near(dx.view(), slopes([&](const Numbers& v) { return of(v, h, w); }, in),
                         1e-8 + tolerance(type, taps)));
        EXPECT_TRUE(Near(d_entering.view(),
                         slopes([&](const Numbers& v) { return of(in, v, w); }, h),
                         1e-8 + tolerance(kept, taps)));
        const Numbers want = slopes([&](const Numbers& v) { return of(in, h, v); }, w);
        // A sum may cancel, but its roundings are those of |dy| |x|.
        const double terms = std::sqrt(dot(g.y, g.y) * (dot(in, in) + dot(h, h)));
        EXPECT_TRUE(Near(
            d_weight, want,
            1e-8 + tolerance(DType::kF32, kShortTokens) * std::max(1.0, terms / largest(want))));
        EXPECT_TRUE(dx.surroundings_kept());
        EXPECT_TRUE(d_entering.surroundings_kept());
      }
    }
  }
}

TEST_P(Histories, EnterAndLeaveAShift) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 13, 200}) {
    for (int mix = 0; mix < 4; ++mix) {
      const int64_t heads = 3, channels = heads * width;
      const DType type = kReals[mix % 2], kept = kReals[mix / 2];
      const TokenShift shift{heads, kDocuments};
      const Padded x(rig, "x", kTokens, channels, type), y(rig, "y", kTokens, channels, type);
      const Padded logits(rig, "a", kTokens, heads, DType::kF32);
      const Padded entering(rig, "h", kCount, channels, kept);
      const Padded leaving(rig, "l", kCount, channels, kept);
      kernels::token_shift_forward(rig.exec, shift, x, logits, y, {entering, leaving});
      const Results want =
          naive_shift(shift, x.numbers(), entering.numbers(), logits.numbers(), width);
      EXPECT_TRUE(Near(y.view(), want.y, tolerance(type, 2)));
      EXPECT_TRUE(Near(leaving.view(), want.leaving, tolerance(kept, 1)));
      EXPECT_TRUE(y.surroundings_kept());
      EXPECT_TRUE(leaving.surroundings_kept());
    }
  }
}

TEST_P(Histories, OfAShiftHaveGradients) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 9}) {
    for (int mix = 0; mix < 4; ++mix) {
      const int64_t heads = 2, channels = heads * width;
      const DType type = kReals[mix % 2], kept = kReals[mix / 2];
      const TokenShift shift{heads, kShort};
      const Padded x(rig, "x", kShortTokens, channels, type);
      const Padded dy(rig, "dy", kShortTokens, channels, type);
      const Padded dx(rig, "dx", kShortTokens, channels, type);
      const Padded logits(rig, "a", kShortTokens, heads, DType::kF32);
      const Padded d_logits(rig, "da", kShortTokens, heads, DType::kF32);
      const Padded entering(rig, "h", kShortCount, channels, kept);
      const Padded d_leaving(rig, "dl", kShortCount, channels, kept);
      const Padded d_entering(rig, "dh", kShortCount, channels, kept);
      kernels::token_shift_backward(rig.exec, shift, x, logits, dy, dx, d_logits,
                                    {entering, d_leaving, d_entering});
      const Results g{dy.numbers(), d_leaving.numbers()};
      const Numbers in = x.numbers(), h = entering.numbers(), l = logits.numbers();
      const auto of = [&](const Numbers& a, const Numbers& b, const Numbers& c) {
        return loss(naive_shift(shift, a, b, c, width), g);
      };
      EXPECT_TRUE(Near(dx.view(), slopes([&](const Numbers& v) { return of(v, h, l); }, in),
                       tolerance(type, 2)));
      EXPECT_TRUE(Near(d_entering.view(), slopes([&](const Numbers& v) { return of(in, v, l); }, h),
                       tolerance(kept, 2)));
      EXPECT_TRUE(Near(d_logits.view(), slopes([&](const Numbers& v) { return of(in, h, v); }, l),
                       tolerance(DType::kF32, width)));
      EXPECT_TRUE(dx.surroundings_kept());
      EXPECT_TRUE(d_entering.surroundings_kept());
    }
  }
}

// One token at a time with the history written over itself, as in decoding: the bits of the whole.
TEST_P(Histories, CarryASequenceTokenByToken) {
  Rig rig(2, GetParam());
  constexpr int64_t kRows = 9, kChannels = 37;
  const Tensor x = rig.normal("x", {kRows, kChannels}, 1, DType::kBF16);
  const Tensor weight = rig.normal("w", {kChannels, 4}), logits = rig.normal("a", {kRows, 1});
  const Tensor conv = rig.exec.empty({kRows, kChannels}), conv_step = rig.exec.empty(conv.shape());
  const Tensor mixed = rig.exec.empty({kRows, kChannels}, DType::kBF16),
               mixed_step = rig.exec.empty({kRows, kChannels}, DType::kBF16);
  constexpr int32_t kWhole[] = {0, kRows}, kOne[] = {0, 1};
  kernels::short_conv_forward(rig.exec, {.documents = kWhole}, x, weight, {}, conv);
  kernels::token_shift_forward(rig.exec, {1, kWhole}, x, logits, mixed);
  const Tensor three = rig.exec.zeros({1, 3, kChannels});
  const Tensor one = rig.exec.zeros({1, 1, kChannels}, DType::kBF16);
  for (int64_t t = 0; t < kRows; ++t) {
    const Tensor row = x.row_range(t, 1);
    kernels::short_conv_forward(rig.exec, {.documents = kOne}, row, weight, {},
                                conv_step.row_range(t, 1), {three, three});
    kernels::token_shift_forward(rig.exec, {1, kOne}, row, logits.row_range(t, 1),
                                 mixed_step.row_range(t, 1), {one, one});
  }
  // A tap on zeros instead of none may round another way.
  EXPECT_TRUE(Near(conv_step, conv, tolerance(DType::kF32, 4)));
  EXPECT_TRUE(SameBits(mixed_step, mixed));
}

// Without what enters, zeros enter; d_entering may be written over d_leaving.
TEST_P(Histories, AreZeroWhenTheyAreNotGiven) {
  Rig rig(2, GetParam());
  constexpr int64_t kChannels = 5;
  const Tensor x = rig.normal("x", {kShortTokens, kChannels}), y = rig.exec.empty(x.shape());
  const Tensor dy = rig.normal("dy", x.shape()), dx = rig.exec.empty(x.shape());
  const Tensor weight = rig.normal("w", {kChannels, 4}), d_weight = rig.exec.zeros({kChannels, 4});
  const Tensor leaving = rig.normal("l", {kShortCount, 3, kChannels});
  const ShortConv conv{.documents = kShort};
  kernels::short_conv_forward(rig.exec, conv, x, weight, {}, y, {.leaving = leaving});
  const Numbers none(static_cast<size_t>(leaving.elements()), 0.0);
  const Results want = naive_conv(conv, numbers(x), none, numbers(weight));
  EXPECT_TRUE(Near(y, want.y, tolerance(DType::kF32, 4)));
  EXPECT_TRUE(Near(leaving, want.leaving, 0));

  const Tensor d = rig.normal("d", leaving.shape());
  const Results g{numbers(dy), numbers(d)};
  kernels::short_conv_backward(rig.exec, conv, x, weight, {}, dy, dx, d_weight, {},
                               {.d_leaving = d, .d_entering = d});
  const auto of_history = [&](const Numbers& v) {
    return loss(naive_conv(conv, numbers(x), v, numbers(weight)), g);
  };
  EXPECT_TRUE(Near(d, slopes(of_history, none), 1e-8 + tolerance(DType::kF32, 4)));
}

TEST_P(Histories, PassThroughWhereThereAreNoTokens) {
  Rig rig(1, GetParam());
  constexpr int32_t kNone[] = {0, 0, 0};
  const Tensor none = rig.exec.empty({0, 3}), weight = rig.normal("w", {3, 4});
  const Tensor no_logits = rig.exec.empty({0, 1}), d_weight = rig.exec.zeros({3, 4});
  const Tensor three = rig.normal("h", {2, 3, 3}), left = rig.exec.empty({2, 3, 3});
  const Tensor one = rig.normal("h", {2, 1, 3}), left_one = rig.exec.empty({2, 1, 3});
  kernels::short_conv_forward(rig.exec, {.documents = kNone}, none, weight, {}, none,
                              {three, left});
  EXPECT_TRUE(SameBits(left, three));
  kernels::token_shift_forward(rig.exec, {1, kNone}, none, no_logits, none, {one, left_one});
  EXPECT_TRUE(SameBits(left_one, one));
  const Tensor d = rig.exec.empty({2, 3, 3}), d_one = rig.exec.empty({2, 1, 3});
  kernels::short_conv_backward(rig.exec, {.documents = kNone}, none, weight, {}, none, none,
                               d_weight, {}, {three, left, d});
  EXPECT_TRUE(SameBits(d, left));
  kernels::token_shift_backward(rig.exec, {1, kNone}, none, no_logits, none, none, no_logits,
                                {one, left_one, d_one});
  EXPECT_TRUE(SameBits(d_one, left_one));
}

TEST_P(Histories, AreChecked) {
  Rig rig(1, GetParam());
  constexpr int32_t kTwo[] = {0, 2, 5};
  const Tensor x = rig.normal("x", {5, 3}), y = rig.exec.empty({5, 3});
  const Tensor weight = rig.normal("w", {3, 4}), logits = rig.normal("a", {5, 1});
  const Tensor wrong = rig.normal("h", {2, 4, 3});
  EXPECT_THROW(
      kernels::short_conv_forward(rig.exec, {.documents = kTwo}, x, weight, {}, y, {wrong, {}}),
      Error);
  EXPECT_THROW(kernels::token_shift_forward(rig.exec, {1, kTwo}, x, logits, y, {{}, wrong}), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, Histories, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
