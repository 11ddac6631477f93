#include "kernels/states/decay.h"
#include "kernels/states/history.h"
#include "kernels/states/matrices.h"
#include "kernels/states/select.h"
#include "kernels/states/turn.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

// Documents of a prime number of tokens, of none, of one.
const std::vector<int32_t> kDocuments = {0, 7, 7, 8, 31};
constexpr int64_t kCount = 4;

class States : public testing::TestWithParam<Isa> {
 protected:
  Rig rig{2, GetParam()};

  Tensor floats(const std::vector<float>& values) {
    const Tensor t = rig.exec.empty({std::ssize(values)});
    std::copy(values.begin(), values.end(), host<float>(t));
    return t;
  }
  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor t = rig.exec.empty({std::ssize(values)}, DType::kI32);
    std::copy(values.begin(), values.end(), host<int32_t>(t));
    return t;
  }
  // With numbers that a kernel has to overwrite.
  Tensor dirty(Shape shape) { return rig.normal("dirty", shape); }
};

TEST_P(States, FactorsApplyToLeadingDimensions) {
  const Tensor state = rig.normal("s", {3, 2, 5, 19});
  const Numbers from = numbers(state);
  for (const Shape& shape : {Shape{3, 2}, Shape{3, 2, 5}, Shape{3, 2, 5, 19}}) {
    const Tensor logs = rig.normal("f", shape), out = dirty(state.shape());
    const Numbers f = numbers(logs);
    Numbers want;
    for (size_t i = 0; i < from.size(); ++i) {
      want.push_back(std::exp(f[i / (from.size() / f.size())]) * from[i]);
    }
    kernels::decay_state(rig.exec, {logs}, state, out);
    EXPECT_TRUE(Near(out, want, tolerance(DType::kF32, 1)));
  }
}

TEST_P(States, WeightsAreMultipliedByTimesOfSequencesOrColumns) {
  const Tensor state = rig.normal("s", {3, 5, 19}), weights = rig.normal("w", {5, 19}, 0.3);
  const Numbers from = numbers(state), w = numbers(weights);
  for (const int64_t each : {1, 19}) {
    const Tensor times = rig.normal("t", {3, each}), out = dirty(state.shape());
    const Numbers t = numbers(times);
    Numbers want;
    for (size_t i = 0; i < from.size(); ++i) {
      const size_t n = i / w.size(), of = i % w.size();
      want.push_back(std::exp(t[n * each + of % each] * w[of]) * from[i]);
    }
    kernels::decay_state(rig.exec, {times, weights}, state, out);
    EXPECT_TRUE(Near(out, want, tolerance(DType::kF32, 1)));
  }
}

TEST_P(States, SidesScaleRowsAndColumns) {
  const Tensor state = rig.normal("s", {3, 2, 5, 19}), r = rig.normal("r", {3, 2, 5}),
               c = rig.normal("c", {3, 2, 19}), out = dirty(state.shape());
  const Numbers from = numbers(state), rows = numbers(r), columns = numbers(c);
  Numbers want;
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t row = i / 19, head = row / 5;
    want.push_back(std::exp(rows[row] + columns[head * 19 + i % 19]) * from[i]);
  }
  kernels::decay_state_sides(rig.exec, r, c, state, out);
  EXPECT_TRUE(Near(out, want, tolerance(DType::kF32, 1)));
}

TEST_P(States, DocumentSumsRepeatForHeadsThatShareRows) {
  constexpr int64_t kHeads = 6, kGroups = 2, kWidth = 19;
  const Padded x(rig, "x", kDocuments.back(), kGroups * kWidth, DType::kF32);
  const Numbers rows = x.numbers();
  Numbers want;
  for (size_t d = 0; d < kCount; ++d) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t c = 0; c < kWidth; ++c) {
        double sum = 0;
        for (int64_t t = kDocuments[d]; t < kDocuments[d + 1]; ++t) {
          sum += rows[(t * kGroups + h / (kHeads / kGroups)) * kWidth + c];
        }
        want.push_back(sum);
      }
    }
  }
  const Tensor sums = dirty({kCount, kHeads, kWidth});
  kernels::document_sums(rig.exec, {kHeads, kGroups, kWidth}, kDocuments, x, sums);
  EXPECT_TRUE(Near(sums, want, tolerance(DType::kF32, kDocuments.back())));
}

TEST_P(States, RatesBecomeLogDecaysOfStates) {
  const Tensor rates = rig.normal("a", {19, 3}), dt = rig.normal("dt", {19});
  for (const bool timed : {false, true}) {
    const Tensor logs = dirty({3, 19});
    Numbers want;
    for (size_t i = 0; i < 3 * 19; ++i) {
      const double rate = -std::exp(numbers(rates)[i % 19 * 3 + i / 19]);
      want.push_back(timed ? rate * std::exp(numbers(dt)[i % 19]) : rate);
    }
    kernels::log_rates(rig.exec, rates, timed ? ConstView(dt) : ConstView{}, logs);
    EXPECT_TRUE(Near(logs, want, tolerance(DType::kF32, 1)));
  }
}

TEST_P(States, IdentityIsSetInsideWiderMatrices) {
  const Tensor matrices = dirty({2, 3, 5, 11});
  kernels::set_identity(rig.exec, 4, matrices);
  Numbers want;
  for (size_t i = 0; i < 2 * 3 * 5 * 11; ++i) want.push_back(i % 11 == 4 + i / 11 % 5 ? 1 : 0);
  EXPECT_EQ(numbers(matrices), want);
}

TEST_P(States, TransposeHasTheSameBits) {
  // Below a block of vectors, whole blocks, and both with an edge.
  for (const auto& [rows, columns] : {std::pair{3, 5}, {16, 32}, {33, 18}, {1, 40}}) {
    const Tensor x = rig.normal("x", {2, 3, rows, columns}), y = dirty({2, 3, columns, rows});
    kernels::transpose_matrices(rig.exec, x, y);
    const Numbers from = numbers(x);
    Numbers want;
    for (size_t m = 0; m < 6; ++m) {
      for (int c = 0; c < columns; ++c) {
        for (int r = 0; r < rows; ++r) want.push_back(from[(m * rows + r) * columns + c]);
      }
    }
    EXPECT_EQ(numbers(y), want) << rows << " x " << columns;
  }
}

// State i of `state`, or zeros for -1.
Numbers state_of(const Tensor& state, int32_t i) {
  if (i >= 0) return numbers(state.row(i));
  return Numbers(static_cast<size_t>(state.elements() / state.shape()[0]), 0.0);
}

TEST_P(States, StatesArePickedByIndex) {
  // Larger than one task.
  const Tensor from = rig.normal("from", {3, 7, 2503}), other = rig.normal("other", {4, 7, 2503});
  const std::vector<int32_t> index = {2, -1, 0, 2};
  for (const bool otherwise : {false, true}) {
    const Tensor to = dirty({4, 7, 2503});
    kernels::pick_states(rig.exec, from, integers(index),
                         otherwise ? ConstView(other) : ConstView{}, to);
    for (int32_t i = 0; i < 4; ++i) {
      const bool kept = index[i] < 0 && otherwise;
      EXPECT_EQ(numbers(to.row(i)), kept ? state_of(other, i) : state_of(from, index[i]));
    }
  }
  EXPECT_ANY_THROW(kernels::pick_states(rig.exec, from, integers({3}), {}, dirty({1, 7, 2503})));
}

TEST_P(States, NothingPassesWhereADocumentStarts) {
  const Tensor state = rig.normal("s", {3, 7, 5}), start = rig.normal("start", {3, 7, 5});
  const Tensor passes = floats({1, 0, 1});
  for (const bool otherwise : {false, true}) {
    const Tensor to = dirty({3, 7, 5});
    kernels::pass_states(rig.exec, passes, state, otherwise ? ConstView(start) : ConstView{}, to);
    EXPECT_EQ(numbers(to.row(0)), state_of(state, 0));
    EXPECT_EQ(numbers(to.row(1)), otherwise ? state_of(start, 1) : state_of(start, -1));
    EXPECT_EQ(numbers(to.row(2)), state_of(state, 2));
  }
}

TEST_P(States, HistoriesMoveUpByTheirNewRows) {
  constexpr int64_t kRows = 3, kWidth = 5;
  const Tensor added = rig.normal("added", {4, kRows, kWidth}),
               entering = rig.normal("entering", {4, kRows, kWidth}),
               d = rig.normal("d", {4, kRows, kWidth}), counts = floats({0, 1, 2, 3});
  const Tensor leaving = dirty(added.shape()), d_entering = dirty(added.shape());
  kernels::append_history(rig.exec, counts, added, entering, leaving);
  kernels::append_history_adjoint(rig.exec, counts, d, d_entering);
  for (int64_t n = 0; n < 4; ++n) {
    for (int64_t r = 0; r < kRows; ++r) {
      const bool fresh = r + n >= kRows;
      EXPECT_EQ(numbers(leaving.row(n).row(r)),
                numbers((fresh ? added.row(n).row(r) : entering.row(n).row(r + n))));
      EXPECT_EQ(numbers(d_entering.row(n).row(r)),
                r < n ? Numbers(kWidth, 0.0) : numbers(d.row(n).row(r - n)));
    }
  }
  const Tensor sums = dirty({4});
  kernels::add_history_counts(rig.exec, counts, floats({0, 1, 2, 3}), kRows, sums);
  EXPECT_EQ(numbers(sums), (Numbers{0, 2, 3, 3}));
}

struct Complex {
  double re, im;
};
Complex at(const Numbers& state, size_t heads_before, size_t c, size_t v, size_t dk, size_t dv) {
  const size_t first = 2 * heads_before * dk * dv + c * dv + v;
  return {state[first], state[first + dk * dv]};
}

TEST_P(States, TurnsAreProductsOfComplexNumbers) {
  constexpr size_t kDk = 5, kDv = 19;
  const Tensor factors = rig.normal("f", {3, 2, 2, kDk}),
               state = rig.normal("s", {3, 2, 2, kDk, kDv});
  for (const kernels::Turn turn :
       {kernels::Turn::kForward, kernels::Turn::kBack, kernels::Turn::kConjugate}) {
    const Tensor out = dirty(state.shape());
    kernels::turn_state(rig.exec, factors, turn, state, out);
    const Numbers f = numbers(factors), from = numbers(state);
    Numbers want(from.size());
    for (size_t i = 0; i < 6 * kDk * kDv; ++i) {
      const size_t head = i / (kDk * kDv), c = i / kDv % kDk, v = i % kDv;
      Complex x = at(from, head, c, v, kDk, kDv), y = at(f, head, c, 0, kDk, 1);
      if (turn == kernels::Turn::kBack) y.im = -y.im;
      if (turn == kernels::Turn::kConjugate) x.im = -x.im;
      const size_t first = 2 * head * kDk * kDv + c * kDv + v;
      want[first] = y.re * x.re - y.im * x.im;
      want[first + kDk * kDv] = y.im * x.re + y.re * x.im;
    }
    EXPECT_TRUE(Near(out, want, tolerance(DType::kF32, 2)));
  }
}

TEST_P(States, ConjugatesKeepRealParts) {
  const Tensor state = rig.normal("s", {3, 2, 2, 5, 7}), out = dirty({3, 2, 10, 7});
  kernels::conjugate_state(rig.exec, state, out);
  Numbers want = numbers(state);
  for (size_t i = 0; i < want.size(); ++i) want[i] = i / 35 % 2 == 0 ? want[i] : -want[i];
  EXPECT_EQ(numbers(out), want);
}

TEST_P(States, LastTurnsAreThoseOfTheLastToken) {
  constexpr int64_t kHeads = 2, kDk = 5;
  const Tensor phase = rig.normal("p", {kDocuments.back(), kHeads * kDk}),
               g = rig.normal("g", {kCount, kHeads, kDk});
  const Numbers p = numbers(phase);
  for (const bool decays : {false, true}) {
    const Tensor turns = dirty({kCount, kHeads, 2, kDk});
    kernels::last_turns(rig.exec, kDocuments, phase, decays ? ConstView(g) : ConstView{}, turns);
    Numbers want;
    for (size_t i = 0; i < kCount * kHeads * 2 * kDk; ++i) {
      const size_t c = i % kDk, head = i / (2 * kDk) % kHeads, d = i / (2 * kDk * kHeads);
      const bool none = kDocuments[d] == kDocuments[d + 1];
      const double angle = none ? 0 : p[((kDocuments[d + 1] - 1) * kHeads + head) * kDk + c];
      const double size = decays ? std::exp(numbers(g)[(d * kHeads + head) * kDk + c]) : 1;
      want.push_back(size * (i / kDk % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
    EXPECT_TRUE(Near(turns, want, tolerance(DType::kF32, 1)));
  }
}

TEST_P(States, TurnGradientIsTheSlopeAlongTheAngle) {
  constexpr size_t kDk = 3, kDv = 19;
  const Tensor state = rig.normal("s", {1, 2, 2, kDk, kDv}), d = rig.normal("d", state.shape());
  const Numbers from = numbers(state), weights = numbers(d);
  // The loss <d, e^{i angle} state> of all angles at 0.
  const auto loss = [&](const Numbers& angles) {
    double sum = 0;
    for (size_t i = 0; i < 2 * kDk * kDv; ++i) {
      const size_t head = i / (kDk * kDv), c = i / kDv % kDk, v = i % kDv;
      const Complex x = at(from, head, c, v, kDk, kDv), w = at(weights, head, c, v, kDk, kDv);
      const double cos = std::cos(angles[head * kDk + c]), sin = std::sin(angles[head * kDk + c]);
      sum += w.re * (cos * x.re - sin * x.im) + w.im * (sin * x.re + cos * x.im);
    }
    return sum;
  };
  const Tensor d_angle = dirty({1, 2, kDk});
  kernels::turn_gradient(rig.exec, state, d, d_angle);
  EXPECT_TRUE(Near(d_angle, slopes(loss, Numbers(2 * kDk, 0.0)), 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Every, States, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
