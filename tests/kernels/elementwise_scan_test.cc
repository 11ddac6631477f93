#include "kernels/scan/elementwise_scan.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

enum class Kind : uint8_t { kSelective, kStatic };

struct Case {
  std::vector<int32_t> documents;
  int64_t channels = 8, states = 4;
  Kind kind = Kind::kSelective;
  bool given_states = true, skip = true;
  DType dtype = DType::kF32;
  double step = 0.1;  // size of dt
};

// A scan token by token and its derivative in the opposite direction, in double. Factors are looked
// up by token and channel, whatever the kind.
struct Naive {
  const Case& c;
  Numbers x, dt, b, c_read, a_log, skip, initial, d_out, d_final;
  Numbers out, final_state, dx, d_dt, db, dc, d_a_log, d_skip, d_initial;

  bool selective() const { return c.kind == Kind::kSelective; }
  int64_t at_dt(int64_t t, int64_t ch) const { return selective() ? t * c.channels + ch : ch; }
  int64_t at_b(int64_t t, int64_t ch, int64_t n) const {
    return (selective() ? t : ch) * c.states + n;
  }

  // One number of the state of document d through its tokens and back.
  void run(int64_t d, int64_t ch, int64_t n) {
    const int64_t begin = c.documents[d], end = c.documents[d + 1];
    const int64_t state = (d * c.states + n) * c.channels + ch, rate_at = ch * c.states + n;
    const double rate = std::exp(a_log[rate_at]);
    Numbers m{initial[state]};
    for (int64_t t = begin; t < end; ++t) {
      const double step = dt[at_dt(t, ch)],
                   input = step * b[at_b(t, ch, n)] * x[t * c.channels + ch];
      m.push_back(std::exp(-step * rate) * m.back() + input);
      out[t * c.channels + ch] += c_read[at_b(t, ch, n)] * m.back();
    }
    final_state[state] = m.back();
    double dm = d_final[state];
    for (int64_t t = end - 1; t >= begin; --t) {
      const int64_t at = t * c.channels + ch;
      const double dy = d_out[at], step = dt[at_dt(t, ch)], bn = b[at_b(t, ch, n)];
      dc[at_b(t, ch, n)] += m[t - begin + 1] * dy;
      dm += c_read[at_b(t, ch, n)] * dy;
      db[at_b(t, ch, n)] += dm * step * x[at];
      dx[at] += dm * step * bn;
      const double decay = std::exp(-step * rate), d_log = dm * decay * m[t - begin];
      d_dt[at_dt(t, ch)] += dm * bn * x[at] - rate * d_log;
      d_a_log[rate_at] -= step * rate * d_log;
      dm *= decay;
    }
    d_initial[state] = dm;
  }

  void run() {
    const auto documents = static_cast<int64_t>(c.documents.size()) - 1;
    for (int64_t d = 0; d < documents; ++d) {
      for (int64_t ch = 0; ch < c.channels; ++ch) {
        for (int64_t n = 0; n < c.states; ++n) run(d, ch, n);
      }
    }
    for (size_t i = 0; c.skip && i < x.size(); ++i) {
      const size_t ch = i % static_cast<size_t>(c.channels);
      out[i] += skip[ch] * x[i], dx[i] += skip[ch] * d_out[i], d_skip[ch] += d_out[i] * x[i];
    }
  }
};

struct Problem {
  Problem(Rig& rig, const Case& the_case) : c(the_case) {
    const int64_t tokens = c.documents.back();
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    const Shape rows{tokens, c.channels}, state{n, c.states, c.channels};
    const bool selective = c.kind == Kind::kSelective;
    const Shape input = selective ? Shape{tokens, c.states} : Shape{c.channels, c.states};
    const DType input_type = selective ? c.dtype : DType::kF32;
    x = rig.normal("x", rows, 1, c.dtype), d_out = rig.normal("d_out", rows, 1, c.dtype);
    b = rig.normal("b", input, 1, input_type), read = rig.normal("c", input, 1, input_type);
    a_log = rig.normal("a_log", {c.channels, c.states});
    step = rig.normal("step", selective ? rows : Shape{c.channels});
    for (int64_t i = 0; i < step.elements(); ++i) {
      float& s = host<float>(step)[i];
      s = static_cast<float>(c.step) * std::abs(s);
      if (!selective) s = std::log(s);
    }
    out = rig.exec.empty(rows, c.dtype), dx = rig.exec.empty(rows, c.dtype);
    d_step = rig.exec.zeros(step.shape());
    db = rig.exec.zeros(input, input_type), dc = rig.exec.zeros(input, input_type);
    d_a_log = rig.exec.zeros(a_log.shape());
    if (c.skip) skip = rig.normal("skip", {c.channels}), d_skip = rig.exec.zeros({c.channels});
    if (!c.given_states) return;
    initial = rig.normal("initial", state), d_final = rig.normal("d_final", state);
    final_state = rig.exec.empty(state), d_initial = rig.exec.empty(state);
  }

  static ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
  static View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

  kernels::SelectiveScan selective() const {
    return {x, step, b, read, a_log, seen(skip), c.documents};
  }
  kernels::StaticScan fixed() const { return {x, step, a_log, b, read, seen(skip), c.documents}; }
  void run(Exec& exec) {
    if (c.kind == Kind::kSelective) {
      kernels::selective_scan_forward(exec, selective(), seen(initial), out, wanted(final_state));
      kernels::selective_scan_backward(
          exec, selective(), seen(initial), d_out, seen(d_final),
          {dx, d_step, db, dc, d_a_log, wanted(d_skip), wanted(d_initial)});
    } else {
      kernels::static_scan_forward(exec, fixed(), seen(initial), out, wanted(final_state));
      kernels::static_scan_backward(
          exec, fixed(), seen(initial), d_out, seen(d_final),
          {dx, d_step, d_a_log, db, dc, wanted(d_skip), wanted(d_initial)});
    }
  }

  Naive expected() const {
    const auto zeros = [](int64_t count) { return Numbers(static_cast<size_t>(count), 0.0); };
    const int64_t state = (static_cast<int64_t>(c.documents.size()) - 1) * c.states * c.channels;
    const auto or_zeros = [&](const Tensor& t, int64_t count) {
      return t.defined() ? numbers(t) : zeros(count);
    };
    Naive r{c,
            numbers(x),
            numbers(step),
            numbers(b),
            numbers(read),
            numbers(a_log),
            or_zeros(skip, c.channels),
            or_zeros(initial, state),
            numbers(d_out),
            or_zeros(d_final, state),
            zeros(x.elements()),
            zeros(state),
            zeros(x.elements()),
            zeros(step.elements()),
            zeros(b.elements()),
            zeros(b.elements()),
            zeros(a_log.elements()),
            zeros(c.channels),
            zeros(state)};
    const bool fixed = c.kind == Kind::kStatic;
    for (double& s : r.dt) s = fixed ? std::exp(s) : s;
    r.run();
    for (size_t i = 0; fixed && i < r.dt.size(); ++i) r.d_dt[i] *= r.dt[i];
    return r;
  }

  Case c;
  Tensor x, step, b, read, a_log, skip, d_out, initial, d_final;
  Tensor out, final_state, dx, d_step, db, dc, d_a_log, d_skip, d_initial;
};

// Sums run over up to a few hundred tokens or channels; 1e-5 of the largest is some hundred
// roundings of f32, of which sqrt(300 * 16) = 70 are expected. For bf16 the final rounding counts.
void check_once(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {} channels, {} states, {}", name_of(isa),
                             c.documents.back(), c.channels, c.states,
                             c.kind == Kind::kStatic ? "static" : "selective"));
    Rig rig(2, isa);
    Problem p(rig, c);
    p.run(rig.exec);
    const Naive want = p.expected();
    const double f32 = 1e-5, rows = c.dtype == DType::kF32 ? f32 : 1e-2;
    // Terms are of order one, so that a sum over tokens that happens to cancel is judged by its
    // terms.
    const auto summed = [&](const Numbers& sum) {
      const double terms = std::sqrt(static_cast<double>(c.documents.back()));
      return c.kind == Kind::kStatic ? f32 * std::max(1.0, terms / std::max(1e-6, largest(sum)))
                                     : rows;
    };
    EXPECT_TRUE(Near(p.out, want.out, rows)) << "out";
    EXPECT_TRUE(Near(p.dx, want.dx, rows)) << "dx";
    EXPECT_TRUE(Near(p.d_step, want.d_dt, f32)) << "d dt";
    EXPECT_TRUE(Near(p.db, want.db, summed(want.db))) << "db";
    EXPECT_TRUE(Near(p.dc, want.dc, summed(want.dc))) << "dc";
    EXPECT_TRUE(Near(p.d_a_log, want.d_a_log, f32)) << "d a_log";
    if (c.skip) {
      EXPECT_TRUE(Near(p.d_skip, want.d_skip, f32)) << "d skip";
    }
    if (c.given_states) {
      EXPECT_TRUE(Near(p.final_state, want.final_state, f32)) << "final state";
      EXPECT_TRUE(Near(p.d_initial, want.d_initial, f32)) << "d initial state";
    }
  }
}

void check(Case c) {
  for (const Kind kind : {Kind::kSelective, Kind::kStatic}) {
    c.kind = kind;
    check_once(c);
  }
}

TEST(ElementwiseScan, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {0, 1, 2, 31, 32, 33, 37, 64, 65, 300}) {
    check({.documents = {0, tokens}});
  }
}

TEST(ElementwiseScan, AgreesWithTheRecurrenceAtEveryWidth) {
  for (const int64_t channels : {1, 7, 8, 63, 64, 65, 130}) {
    for (const int64_t states : {1, 3, 16}) {
      check({.documents = {0, 67}, .channels = channels, .states = states});
    }
  }
}

// Documents of no tokens pass their state on; runs of documents are cut near a thousand tokens.
TEST(ElementwiseScan, KeepsDocumentsApart) {
  check({.documents = {0, 0, 1, 38, 38, 103, 104, 250, 250}, .channels = 70});
  check({.documents = {0, 1000, 1000, 1025, 1100, 2200, 2201}, .channels = 3, .states = 2});
}

TEST(ElementwiseScan, StartsFromZeroWhereNoStateIsGiven) {
  check({.documents = {0, 50, 200}, .channels = 24, .given_states = false});
}

TEST(ElementwiseScan, WorksWithoutASkip) { check({.documents = {0, 50}, .skip = false}); }

TEST(ElementwiseScan, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190}, .channels = 72, .states = 16, .dtype = DType::kBF16});
}

// Everything is forgotten from one token to the next: decays underflow, and nothing may become NaN.
TEST(ElementwiseScan, SurvivesStepsThatForgetEverything) {
  for (const double step : {30.0, 1e4}) check({.documents = {0, 80}, .step = step});
}

TEST(ElementwiseScan, GivesTheFinalStateAlone) {
  Rig rig;
  Problem p(rig, {.documents = {0, 40, 100}, .channels = 66});
  p.run(rig.exec);
  const Tensor final_state = rig.exec.empty(p.final_state.shape());
  kernels::selective_scan_forward(rig.exec, p.selective(), p.initial, {}, final_state);
  EXPECT_TRUE(SameBits(final_state, p.final_state));
}

// x and the output as columns of wider matrices, b and c as columns of one projection.
TEST(ElementwiseScan, TakesStridedRows) {
  Rig rig;
  constexpr int64_t kTokens = 70, kChannels = 19, kStates = 5;
  Problem p(
      rig,
      {.documents = {0, kTokens}, .channels = kChannels, .states = kStates, .given_states = false});
  p.run(rig.exec);
  const Tensor wide = rig.exec.empty({kTokens, 2 * kChannels + 2 * kStates + 3});
  for (int64_t t = 0; t < kTokens; ++t) {
    float* row = host<float>(wide) + t * wide.shape().back();
    std::copy_n(host<float>(p.x) + t * kChannels, kChannels, row);
    std::copy_n(host<float>(p.b) + t * kStates, kStates, row + 2 * kChannels);
    std::copy_n(host<float>(p.read) + t * kStates, kStates, row + 2 * kChannels + kStates);
  }
  kernels::SelectiveScan scan = p.selective();
  scan.x = wide.view().columns(0, kChannels);
  scan.b = wide.view().columns(2 * kChannels, kStates);
  scan.c = wide.view().columns(2 * kChannels + kStates, kStates);
  const View out = wide.view().columns(kChannels, kChannels);
  kernels::selective_scan_forward(rig.exec, scan, {}, out, {});
  EXPECT_TRUE(SameBits(out, p.out));
}

TEST(ElementwiseScan, AddsToTheGradientsOfParameters) {
  for (const Kind kind : {Kind::kSelective, Kind::kStatic}) {
    Rig rig;
    Problem p(rig, {.documents = {0, 40, 90}, .kind = kind});
    p.run(rig.exec);
    const Tensor& some = kind == Kind::kStatic ? p.db : p.d_skip;
    Numbers a_log = numbers(p.d_a_log), other = numbers(some);
    p.run(rig.exec);
    for (double& x : a_log) x *= 2;
    for (double& x : other) x *= 2;
    EXPECT_TRUE(Near(p.d_a_log, a_log, 1e-6));
    EXPECT_TRUE(Near(some, other, 1e-6));
  }
}

TEST(ElementwiseScan, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Kind kind : {Kind::kSelective, Kind::kStatic}) {
    const Case c{.documents = {0, 130, 131, 1300}, .channels = 130, .kind = kind};
    Rig one(1);
    Problem p(one, c);
    p.run(one.exec);
    for (const int threads : {2, 3}) {
      Rig more(threads);
      Problem other(more, c);
      other.run(more.exec);
      EXPECT_TRUE(SameBits(p.out, other.out));
      EXPECT_TRUE(SameBits(p.final_state, other.final_state));
      EXPECT_TRUE(SameBits(p.dx, other.dx));
      EXPECT_TRUE(SameBits(p.d_step, other.d_step));
      EXPECT_TRUE(SameBits(p.db, other.db));
      EXPECT_TRUE(SameBits(p.dc, other.dc));
      EXPECT_TRUE(SameBits(p.d_a_log, other.d_a_log));
      EXPECT_TRUE(SameBits(p.d_skip, other.d_skip));
      EXPECT_TRUE(SameBits(p.d_initial, other.d_initial));
    }
  }
}

}  // namespace
}  // namespace weft::test
