#include "kernels/sequence/token_shift.h"
#include "core/host_access.h"

#include "kernels/gates/forget_gate.h"
#include "kernels/gates/output_gate.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::TokenShift;

Numbers naive(const TokenShift& shift, const Numbers& x, const Numbers& logits) {
  Numbers y(x.size());
  const auto width = static_cast<int64_t>(x.size() / logits.size());
  for (size_t d = 0; d + 1 < shift.documents.size(); ++d) {
    for (int64_t t = shift.documents[d]; t < shift.documents[d + 1]; ++t) {
      for (int64_t c = 0; c < shift.heads * width; ++c) {
        const double a = sigmoid(logits[static_cast<size_t>(t * shift.heads + c / width)]);
        const auto at = static_cast<size_t>(t * shift.heads * width + c);
        const double before =
            t == shift.documents[d] ? 0.0 : x[at - static_cast<size_t>(shift.heads * width)];
        y[at] = a * before + (1 - a) * x[at];
      }
    }
  }
  return y;
}

class Shift : public testing::TestWithParam<Isa> {};

// Documents of one token, an empty one, and one across the border of two row blocks.
constexpr int32_t kDocuments[] = {0, 1, 4, 4, 141};

TEST_P(Shift, MixesEachTokenWithTheOneBefore) {
  Rig rig(2, GetParam());
  for (const int64_t heads : {1, 3}) {
    for (const int64_t width : {1, 13, 200}) {
      for (const DType dtype : kReals) {
        const Padded x(rig, "x", 141, heads * width, dtype), y(rig, "y", 141, heads * width, dtype);
        const Padded logits(rig, "a", 141, heads, DType::kF32);
        const TokenShift shift{heads, kDocuments};
        kernels::token_shift_forward(rig.exec, shift, x, logits, y);
        EXPECT_TRUE(
            Near(y.view(), naive(shift, x.numbers(), logits.numbers()), tolerance(dtype, 2)));
        EXPECT_TRUE(y.surroundings_kept());
      }
    }
  }
}

TEST_P(Shift, BackwardIsTheSlopeOfForward) {
  Rig rig(2, GetParam());
  constexpr int32_t kShort[] = {0, 2, 3, 11};
  for (const int64_t width : {1, 9}) {
    for (const DType dtype : kReals) {
      const int64_t heads = 2;
      const TokenShift shift{heads, kShort};
      const Padded x(rig, "x", 11, heads * width, dtype), dy(rig, "dy", 11, heads * width, dtype);
      const Padded dx(rig, "dx", 11, heads * width, dtype);
      const Padded logits(rig, "a", 11, heads, DType::kF32), da(rig, "da", 11, heads, DType::kF32);
      kernels::token_shift_backward(rig.exec, shift, x, logits, dy, dx, da);
      const Numbers g = dy.numbers(), a = logits.numbers(), in = x.numbers();
      EXPECT_TRUE(Near(dx.view(),
                       slopes([&](const Numbers& v) { return dot(naive(shift, v, a), g); }, in),
                       tolerance(dtype, 2)));
      EXPECT_TRUE(Near(da.view(),
                       slopes([&](const Numbers& v) { return dot(naive(shift, in, v), g); }, a),
                       tolerance(DType::kF32, width)));
      EXPECT_TRUE(dx.surroundings_kept());
      EXPECT_TRUE(da.surroundings_kept());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Shift, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class SigmoidGate : public testing::TestWithParam<Isa> {};

TEST_P(SigmoidGate, MultipliesForwardAndBackward) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 13, 300}) {
    for (const DType dtype : kReals) {
      const Padded x(rig, "x", 37, width, dtype), gate(rig, "gate", 37, width, dtype);
      const Padded dy(rig, "dy", 37, width, dtype), y(rig, "y", 37, width, dtype);
      const Padded dx(rig, "dx", 37, width, dtype), d_gate(rig, "d_gate", 37, width, dtype);
      kernels::output_gate_forward(rig.exec, kernels::GateActivation::kSigmoid, x, gate, y);
      kernels::output_gate_backward(rig.exec, kernels::GateActivation::kSigmoid, x, gate, dy, dx,
                                    d_gate);
      const Numbers a = x.numbers(), g = gate.numbers(), d = dy.numbers();
      Numbers want, want_dx, want_gate;
      for (size_t i = 0; i < a.size(); ++i) {
        const double open = sigmoid(g[i]);
        want.push_back(a[i] * open);
        want_dx.push_back(d[i] * open);
        want_gate.push_back(d[i] * a[i] * open * (1 - open));
      }
      EXPECT_TRUE(Near(y.view(), want, tolerance(dtype, 1)));
      EXPECT_TRUE(Near(dx.view(), want_dx, tolerance(dtype, 1)));
      EXPECT_TRUE(Near(d_gate.view(), want_gate, tolerance(dtype, 1)));
      EXPECT_TRUE(y.surroundings_kept());
      EXPECT_TRUE(d_gate.surroundings_kept());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, SigmoidGate, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ForgetGate, IsTheLogarithmOfTheSigmoidEverywhere) {
  Rig rig;
  const Padded z(rig, "z", 37, 3, DType::kF32, 4), y(rig, "y", 37, 3, DType::kF32);
  const Padded dy(rig, "dy", 37, 3, DType::kF32), dz(rig, "dz", 37, 3, DType::kF32);
  host<float>(z.view())[0] = 100.0f;   // sigmoid rounds to 1
  host<float>(z.view())[1] = -100.0f;  // sigmoid underflows
  kernels::forget_gate_forward(rig.exec, z, y);
  kernels::forget_gate_backward(rig.exec, z, dy, dz);
  const Numbers in = z.numbers(), d = dy.numbers();
  Numbers want, slope;
  for (size_t i = 0; i < in.size(); ++i) {
    want.push_back(in[i] > 0 ? -std::log1p(std::exp(-in[i])) : in[i] - std::log1p(std::exp(in[i])));
    slope.push_back(d[i] * sigmoid(-in[i]));
  }
  EXPECT_TRUE(Near(y.view(), want, tolerance(DType::kF32, 1)));
  EXPECT_TRUE(Near(dz.view(), slope, tolerance(DType::kF32, 1)));
  EXPECT_TRUE(y.surroundings_kept());
  EXPECT_TRUE(dz.surroundings_kept());
}

}  // namespace
}  // namespace weft::test
