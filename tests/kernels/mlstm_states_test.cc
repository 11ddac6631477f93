#include "kernels/states/mlstm.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kCount = 3, kHeads = 2, kDk = 5, kDv = 19, kAll = kCount * kHeads;

struct Parts {
  Tensor c, n, m;
  Parts(Rig& rig, const std::string& name)
      : c(rig.normal(name + "c", {kCount, kHeads, kDk, kDv})),
        n(rig.normal(name + "n", {kCount, kHeads, kDk})),
        m(rig.normal(name + "m", {kCount, kHeads})) {}
  operator kernels::MlstmState() const { return {c, n, m}; }
  operator kernels::MlstmStateOut() const { return {c, n, m}; }

  // C and n and m, one after the other.
  Numbers all() const {
    Numbers out = numbers(c);
    for (const double x : numbers(n)) out.push_back(x);
    for (const double x : numbers(m)) out.push_back(x);
    return out;
  }
  // (C | n) of every head.
  Numbers wide() const {
    Numbers out;
    for (size_t r = 0; r < kAll * kDk; ++r) {
      for (size_t v = 0; v < kDv; ++v) out.push_back(numbers(c)[r * kDv + v]);
      out.push_back(numbers(n)[r]);
    }
    return out;
  }
};

// Where the head of a number of Parts::all() is.
size_t head_of(size_t i) {
  constexpr size_t kC = kAll * kDk * kDv, kN = kAll * kDk;
  if (i < kC) return i / (kDk * kDv);
  return i < kC + kN ? (i - kC) / kDk : i - kC - kN;
}

// The state behind a span, in double.
Numbers applied(const Numbers& b, const Numbers& span, const Numbers& entering) {
  const size_t first_m = entering.size() - kAll;
  Numbers out(entering.size());
  for (size_t i = 0; i < entering.size(); ++i) {
    const size_t head = head_of(i);
    const double kept = b[head] + entering[first_m + head], written = span[first_m + head],
                 m = std::max(kept, written);
    out[i] = i >= first_m ? m : std::exp(kept - m) * entering[i] + std::exp(written - m) * span[i];
  }
  return out;
}

class MlstmStates : public testing::TestWithParam<Isa> {
 protected:
  Rig rig{2, GetParam()};
};

TEST_P(MlstmStates, ASpanRescalesTheStateThatEnters) {
  const Parts span(rig, "span"), entering(rig, "entering"), leaving(rig, "dirty");
  const Tensor b = rig.normal("b", {kCount, kHeads});
  kernels::mlstm_apply(rig.exec, b, span, entering, leaving);
  const Numbers want = applied(numbers(b), span.all(), entering.all());
  EXPECT_TRUE(Near(leaving.c, Numbers(want.begin(), want.begin() + kAll * kDk * kDv),
                   tolerance(DType::kF32, 2)));
  EXPECT_TRUE(Near(leaving.n, Numbers(want.end() - kAll - kAll * kDk, want.end() - kAll),
                   tolerance(DType::kF32, 2)));
  EXPECT_TRUE(Near(leaving.m, Numbers(want.end() - kAll, want.end()), tolerance(DType::kF32, 2)));
}

TEST_P(MlstmStates, NothingThatWasNeverWrittenIsLeft) {
  const Parts span(rig, "span"), entering(rig, "entering"), leaving(rig, "dirty");
  const Tensor b = rig.normal("b", {kCount, kHeads});
  std::fill_n(host<float>(entering.m), kAll, kernels::kMlstmNothing);
  kernels::mlstm_apply(rig.exec, b, span, entering, leaving);
  EXPECT_EQ(leaving.all(), span.all());
}

TEST_P(MlstmStates, TheAdjointIsTheSlopeOnBothSidesOfTheMaximum) {
  const Parts span(rig, "span"), entering(rig, "entering"), d(rig, "d"), out(rig, "dirty");
  const Tensor b = rig.normal("b", {kCount, kHeads});
  bool wins = false, loses = false;
  for (size_t i = 0; i < kAll; ++i) {
    const bool kept = numbers(b)[i] + numbers(entering.m)[i] > numbers(span.m)[i];
    (kept ? wins : loses) = true;
  }
  ASSERT_TRUE(wins && loses);
  kernels::mlstm_apply_adjoint(rig.exec, b, span, entering, d, out);
  const auto loss = [&](const Numbers& x) {
    return dot(applied(numbers(b), span.all(), x), d.all());
  };
  const Numbers want = slopes(loss, entering.all());
  const Numbers got = out.all();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * largest(want));
}

TEST_P(MlstmStates, WideStatesCarryTheScale) {
  const Parts state(rig, "state");
  const Tensor wide = rig.normal("dirty", {kCount, kHeads, kDk, kDv + 1});
  Numbers want = state.wide();
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] *= std::exp(numbers(state.m)[i / (kDk * (kDv + 1))]);
  }
  kernels::mlstm_widen(rig.exec, state, wide);
  EXPECT_TRUE(Near(wide, want, tolerance(DType::kF32, 1)));
}

TEST_P(MlstmStates, WideningGoesBackIntoStatesAndScales) {
  const Parts state(rig, "state"), d(rig, "gates");
  const Tensor wide = rig.normal("dirty", {kCount, kHeads, kDk, kDv + 1}),
               d_wide = rig.normal("d", wide.shape());
  kernels::mlstm_widen(rig.exec, state, wide);
  const Numbers gates = numbers(d.m), w = numbers(wide), dw = numbers(d_wide);
  for (const bool entered : {true, false}) {
    Numbers want_wide = dw, want_m = entered ? gates : numbers(d.m);
    for (size_t i = 0; i < dw.size() && entered; ++i) {
      const size_t head = i / (kDk * (kDv + 1));
      want_wide[i] *= std::exp(numbers(state.m)[head]);
      want_m[head] += dw[i] * w[i];
    }
    kernels::mlstm_widen_backward(rig.exec, entered ? ConstView(wide) : ConstView{},
                                  entered ? ConstView(state.m) : ConstView{}, d_wide, d);
    const Tensor got = rig.exec.empty({std::ssize(want_wide)});
    for (size_t i = 0; i < want_wide.size(); ++i) {
      host<float>(got)[i] = static_cast<float>(d.wide()[i]);
    }
    EXPECT_TRUE(Near(got, want_wide, tolerance(DType::kF32, 1)));
    EXPECT_TRUE(Near(d.m, want_m, tolerance(DType::kF32, 1)));
  }
}

TEST_P(MlstmStates, StabilisedStatesLoseTheRestAndTheLevel) {
  const Parts state(rig, "state"), d(rig, "d");
  const Tensor wide = rig.normal("wide", {kCount, kHeads, kDk, kDv + 1}),
               rest = rig.normal("r", {kCount, kHeads}), m = rig.normal("level", {kCount, kHeads});
  host<float>(m)[1] = kernels::kMlstmNothing;
  kernels::mlstm_stabilise(rig.exec, wide, rest, m, state.c, state.n);
  const Numbers from = numbers(wide), got = state.wide();
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t head = i / (kDk * (kDv + 1));
    const double factor = head == 1 ? 0 : std::exp(numbers(rest)[head] - numbers(m)[head]);
    ASSERT_NEAR(got[i], factor * from[i], 1e-6 * largest(got));
  }

  host<float>(m)[1] = 0.5f;
  const Tensor d_wide = rig.normal("dirty", wide.shape()), d_rest = rig.normal("x", m.shape()),
               d_m = rig.normal("y", m.shape());
  kernels::mlstm_stabilise_backward(rig.exec, wide, rest, m, d, {d_wide, d_rest, d_m});
  Numbers want = d.wide(), want_rest(kAll), want_m = numbers(d.m);
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t head = i / (kDk * (kDv + 1));
    want[i] *= std::exp(numbers(rest)[head] - numbers(m)[head]);
    want_rest[head] += want[i] * from[i];
    want_m[head] -= want[i] * from[i];
  }
  EXPECT_TRUE(Near(d_wide, want, tolerance(DType::kF32, 1)));
  EXPECT_TRUE(Near(d_rest, want_rest, tolerance(DType::kF32, 1)));
  EXPECT_TRUE(Near(d_m, want_m, tolerance(DType::kF32, 1)));
}

TEST_P(MlstmStates, LastRowsAreThoseThatEnteredWhereThereAreNoTokens) {
  const std::vector<int32_t> documents = {0, 7, 7, 8};
  const Padded rows(rig, "rows", 8, kHeads, DType::kF32);
  const Tensor entering = rig.normal("e", {3, kHeads}), last = rig.normal("dirty", {3, kHeads});
  for (const bool entered : {true, false}) {
    kernels::last_rows(rig.exec, documents, rows, entered ? ConstView(entering) : ConstView{},
                       last);
    for (size_t h = 0; h < kHeads; ++h) {
      EXPECT_EQ(numbers(last)[h], rows.numbers()[6 * kHeads + h]);
      EXPECT_EQ(numbers(last)[kHeads + h], entered ? numbers(entering)[kHeads + h] : 0.0);
      EXPECT_EQ(numbers(last)[2 * kHeads + h], rows.numbers()[7 * kHeads + h]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, MlstmStates, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
