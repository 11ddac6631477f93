// Laws of all scans. A new scan or form of one is a descriptor (scan_descriptors.h); every law here
// then holds for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/scan_descriptors.h"

namespace weft::test {
namespace {

class ScanLaws : public testing::TestWithParam<ScanPointer> {
 protected:
  const ScanDescriptor& scan() const { return *GetParam(); }

  // Sums run over up to a few hundred tokens times the head width; 1e-5 of the largest is some
  // hundred roundings of f32, of which sqrt(300 * 128) = 200 are expected. For results in bf16 the
  // final rounding counts.
  double bound_of(const ScanProblem& p, const Tensor& result, bool gradient, Isa isa) const {
    if (result.dtype() == DType::kBF16) return 1e-2;
    return scan().bound(p.c, isa) * (gradient ? scan().gradients : 1);
  }
  bool beside_one(const ScanProblem& p, const std::string& result) const {
    for (const ScanDescriptor::Field& f : p.fields) {
      if ("d_" + f.name == result) return f.values.beside_one;
    }
    return false;
  }

  // `results`: names of those to look at; empty: all.
  void check(const ScanCase& wanted, const std::vector<std::string>& results = {}) const {
    std::vector<Numbers> want;
    for (const Isa isa : available_isas()) {
      Rig rig(2, isa);
      const ScanProblem p(rig, scan(), wanted);
      SCOPED_TRACE(fmt::format("{}, {} tokens, {}/{} heads, {} x {}, {}, forget {}", name_of(isa),
                               p.c.tokens(), p.c.heads, p.c.shared, p.c.key, p.c.value,
                               name_of(p.c.dtype), p.c.forget));
      p.run(rig.exec);
      if (want.empty()) want = ScanReference(p).results();
      const auto got = p.results();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const auto& [name, tensor] = got[i];
        const bool looked_at = std::find(results.begin(), results.end(), name) != results.end();
        if (!results.empty() && !looked_at) continue;
        const bool gradient = name.rfind("d_", 0) == 0 || name.rfind("gradient", 0) == 0;
        Numbers has = numbers(tensor), wants = want[i];
        for (size_t j = 0; beside_one(p, name) && j < has.size(); ++j) has[j] += 1, wants[j] += 1;
        EXPECT_TRUE(near(p, name, has, wants, bound_of(p, tensor, gradient, isa))) << name;
      }
    }
  }

  static void expect_same_bits(const ScanProblem& a, const ScanProblem& b) {
    const auto first = a.results(), second = b.results();
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(SameBits(first[i].second, second[i].second)) << first[i].first;
    }
  }

  testing::AssertionResult near(const ScanProblem& p, const std::string& name, const Numbers& has,
                                const Numbers& wants, double bound) const {
    for (const ScanDescriptor::Field& f : p.fields) {
      if (!f.values.may_cancel || "d_" + f.name != name) continue;
      const double terms = std::sqrt(static_cast<double>(p.c.tokens()));
      bound *= std::max(1.0, terms / std::max(1e-6, largest(wants)));
    }
    return Near(has, wants, bound);
  }
};

INSTANTIATE_TEST_SUITE_P(All, ScanLaws, testing::ValuesIn(all_scans()),
                         [](const auto& info) { return info.param->name; });

// One token; around a block of 16, a chunk of 32 and of 64; more than four chunks.
TEST_P(ScanLaws, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {0, 1, 2, 15, 16, 17, 31, 32, 33, 37, 49, 64, 65, 127, 300}) {
    check({.documents = {0, tokens}, .key = scan().key_at_lengths});
  }
}

TEST_P(ScanLaws, AgreesWithTheRecurrenceAtEveryHeadWidth) {
  for (const auto& [key, value] : scan().widths) {
    check({.documents = {0, scan().tokens_at_widths}, .key = key, .value = value});
  }
}

TEST_P(ScanLaws, KeepsDocumentsApart) {
  check({.documents = {0, 0, 1, 38, 38, 103, 104, 250, 250},
         .heads = 2,
         .shared = 2,
         .key = 16,
         .value = scan().wide_value});
}

// A document without tokens passes its state on, and the gradient of it back; also when there is no
// token.
TEST_P(ScanLaws, LeavesTheStatesOfAnEmptyDocumentAlone) {
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{0, 0, 5, 5}, {0, 0}}) {
    Rig rig;
    const ScanProblem p(rig, scan(), {.documents = documents, .heads = 2, .shared = 2});
    p.run(rig.exec);
    const int64_t last = p.c.count() - 1;
    for (const int64_t d : {int64_t{0}, last}) {
      for (size_t i = 0; i < p.t.entering.size(); ++i) {
        EXPECT_TRUE(SameBits(p.t.leaving[i].row(d), p.t.entering[i].row(d))) << i;
        EXPECT_TRUE(SameBits(p.t.d_entering[i].row(d), p.t.d_leaving[i].row(d))) << i;
      }
    }
  }
}

TEST_P(ScanLaws, SharesHeadsInAGroup) {
  if (!scan().shares) GTEST_SKIP() << "every head has its own inputs";
  check({.documents = {0, 70, 140}, .heads = 6, .shared = 2, .key = 16, .value = 8});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (dtype == DType::kBF16 && !scan().forgets) continue;
    for (const int64_t shared : {1, 2}) {
      check({.documents = {0, 70},
             .heads = 4,
             .shared = shared,
             .key = 8,
             .value = 16,
             .dtype = dtype});
      check({.documents = {0, 70, 140},
             .heads = 4,
             .shared = shared,
             .key = 16,
             .value = 8,
             .dtype = dtype});
    }
  }
}

TEST_P(ScanLaws, StartsFromZeroWhereNoStateIsGiven) {
  check({.documents = {0, 50, 200},
         .heads = 3,
         .shared = 3,
         .key = 24,
         .value = 16,
         .states = false});
}

// From no decay at all to states forgotten completely inside a block: products of decays underflow,
// and nothing may overflow or become NaN.
TEST_P(ScanLaws, AgreesForEveryStrengthOfTheDecay) {
  if (scan().strongest_decay == 0) GTEST_SKIP() << "nothing decays";
  for (const double forget : {0.0, 1.0, 3.0, 5.0, 30.0, 1e3, 1e4}) {
    if (forget < scan().weakest_decay || forget > scan().strongest_decay) continue;
    check(
        {.documents = {0, 200}, .heads = 2, .shared = 2, .key = 16, .value = 16, .forget = forget});
  }
}

TEST_P(ScanLaws, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190},
         .heads = 2,
         .shared = 2,
         .key = 24,
         .value = 64,
         .dtype = DType::kBF16});
}

// Long documents may be cut into pieces that are computed side by side, short ones joined to tasks.
TEST_P(ScanLaws, AgreesWithTheRecurrenceInLongDocuments) {
  if (scan().longest < 2500) GTEST_SKIP() << "rounding errors grow with every token";
  check({.documents = {0, 1000, 1000, 1025, 1100, 2200, 2201}, .key = 2, .value = 3});
  if (!scan().cuts) return;
  check({.documents = {0, 2500}, .heads = 2, .shared = 1, .key = 16, .value = 8, .forget = 0.01});
  check({.documents = {0, 7, 2500}, .key = 8, .value = 16, .forget = 0.01});
  check({.documents = {0, 2100}, .states = false});
}

// Every operand as columns of a wider matrix, between columns that must not change.
TEST_P(ScanLaws, TakesStridedRows) {
  Rig rig;
  const ScanProblem p(rig, scan(), {.documents = {0, 70}, .heads = 2, .shared = 1, .value = 24});
  p.run(rig.exec);
  std::vector<std::unique_ptr<Padded>> wide;
  ScanViews v = p.views();
  const auto widen = [&](const auto& view) {
    wide.push_back(std::make_unique<Padded>(rig, "wide", view.rows(), view.width(), view.dtype));
    const View to = wide.back()->view();
    const int64_t bytes = view.width() * size_of(view.dtype);
    for (int64_t r = 0; r < view.rows(); ++r) {
      std::memcpy(static_cast<char*>(to.data) + r * to.row_stride * size_of(view.dtype),
                  static_cast<const char*>(view.data) + r * bytes, static_cast<size_t>(bytes));
    }
    return to;
  };
  for (size_t i = 0; i < v.in.size(); ++i) {
    const ScanDescriptor::Field& f = p.fields[i];
    if (!f.given || f.parameter || f.values.per_scan) continue;
    v.in[i] = widen(v.in[i]);
    if (f.gradient) v.gradient[i] = widen(v.gradient[i]);
  }
  v.out = widen(v.out), v.d_out = widen(v.d_out);
  std::vector<std::pair<View, Numbers>> want{{v.out, numbers(p.t.out)}};
  for (size_t i = 0; i < v.gradient.size(); ++i) {
    if (!p.fields[i].parameter && p.t.gradient[i].defined()) {
      want.emplace_back(v.gradient[i], numbers(p.t.gradient[i]));
    }
  }
  p.run(rig.exec, v);
  for (const auto& [view, numbers_of] : want) EXPECT_EQ(numbers(view), numbers_of);
  for (const auto& matrix : wide) EXPECT_TRUE(matrix->surroundings_kept());
}

// States between chunks that forward keeps change no bit of any result, at values that fill lines
// of memory and some that do not.
TEST_P(ScanLaws, GivesTheSameBitsFromKeptStates) {
  if (!scan().keeps) GTEST_SKIP() << "nothing is kept";
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t value : {64, 24}) {
      for (const Isa isa : available_isas()) {
        Rig rig(1, isa);
        const ScanCase c{
            .documents = {0, 130, 130, 135}, .key = 24, .value = value, .dtype = dtype};
        const ScanProblem p(rig, scan(), c), other(rig, scan(), c);
        p.run(rig.exec);
        other.run(rig.exec, Keep::kStates);
        expect_same_bits(p, other);
      }
    }
  }
}

TEST_P(ScanLaws, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const std::vector<int32_t>& documents :
       {std::vector<int32_t>{0, 300, 431}, {0, 130, 131, 1300}, {0, 3000}}) {
    const bool one = documents.size() == 2;  // heads of a single document are cut into pieces
    const ScanCase c{.documents = documents,
                     .heads = one ? 2 : 4,
                     .shared = one ? 1 : 2,
                     .key = 16,
                     .value = scan().wide_value};
    for (const Isa isa : available_isas()) {
      Rig rig(1, isa);
      const ScanProblem p(rig, scan(), c);
      p.run(rig.exec);
      for (const int threads : {2, 3}) {
        Rig more(threads, isa);
        const ScanProblem other(more, scan(), c);
        other.run(more.exec);
        expect_same_bits(p, other);
      }
    }
  }
}

TEST_P(ScanLaws, AddsToTheGradientsOfParameters) {
  Rig rig;
  const ScanProblem p(rig, scan(), {.documents = {0, 40, 90}, .heads = 2, .shared = 2});
  p.run(rig.exec);
  std::vector<Numbers> twice;
  for (const Tensor& t : p.t.gradient) {
    twice.push_back(t.defined() ? plus(numbers(t), numbers(t)) : Numbers{});
  }
  p.run(rig.exec);
  for (size_t i = 0; i < p.fields.size(); ++i) {
    if (!p.fields[i].given || !p.fields[i].parameter) continue;
    EXPECT_TRUE(Near(p.t.gradient[i], twice[i], 1e-6)) << p.fields[i].name;
  }
}

// Sequence ranks send states before there are any queries: without outputs, queries are not read.
TEST_P(ScanLaws, GivesTheStatesAlone) {
  if (!scan().states_alone) GTEST_SKIP() << "always has outputs";
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rig(1);
    const ScanCase c{.documents = {0, 0, 1, 14, 150},
                     .heads = 2,
                     .shared = 2,
                     .key = 11,
                     .value = scan().wide_value - 5,
                     .dtype = dtype};
    const ScanProblem p(rig, scan(), c), alone(rig, scan(), c);
    scan().forward(rig.exec, p.c, p.views(), {});
    ScanViews v = alone.views();
    v.out = {};
    const Tensor poison =
        rig.normal("q", alone.t.in[0].shape(), std::nan(""), alone.t.in[0].dtype());
    if (alone.fields[0].name == "q") v.in[0] = poison;
    scan().forward(rig.exec, alone.c, v, {});
    for (size_t i = 0; i < p.t.leaving.size(); ++i) {
      EXPECT_TRUE(SameBits(alone.t.leaving[i], p.t.leaving[i])) << i;
    }
  }
}

TEST_P(ScanLaws, RefusesOperandsThatDoNotFit) {
  Rig rig(1);
  const ScanProblem p(rig, scan(), {.documents = {0, 3, 5}, .heads = 2, .shared = 2});
  p.run(rig.exec);
  for (size_t i = 0; i < p.fields.size(); ++i) {
    if (!p.fields[i].given || p.fields[i].name == "x" || p.fields[i].name == "a_log") continue;
    const auto refuses = [&](auto change) {
      ScanViews v = p.views();
      change(v);
      EXPECT_THROW(p.run(rig.exec, v), Error) << p.fields[i].name;
    };
    const ConstView as_given = p.views().in[i];
    const Tensor wide = rig.exec.zeros({as_given.rows(), as_given.width() + 1}, as_given.dtype),
                 long_one = rig.exec.zeros({7, as_given.width()}, as_given.dtype);
    for (const Tensor& other : {wide, long_one}) {
      refuses([&](ScanViews& v) { v.in[i] = other; });
      if (p.fields[i].gradient) refuses([&](ScanViews& v) { v.gradient[i] = other; });
    }
    refuses([&](ScanViews& v) { v.in[i].dtype = DType::kI32; });
    if (!p.fields[i].gradient) continue;
    refuses([&](ScanViews& v) { v.gradient[i].dtype = DType::kI32; });
    if (scan().name.rfind("Scalar", 0) == 0 && p.fields[i].name == "log_decay") continue;
    refuses([&](ScanViews& v) { v.gradient[i] = {}; });
  }
  ScanViews v = p.views();
  const Tensor state = rig.exec.zeros({3, 2, 8, 8});
  v.entering[0] = state;
  EXPECT_THROW(p.run(rig.exec, v), Error);
}

// The derivatives of the reference, one step after the other, are its slopes.
TEST_P(ScanLaws, HasTheSlopesOfItsFormula) {
  Rig rig(1);
  const ScanProblem p(
      rig, scan(),
      {.documents = {0, 4, 4, 6}, .heads = 2, .shared = 1, .key = 3, .value = 4, .forget = 0.5});
  const ScanReference want(p);
  constexpr float kStep = 1.0f / 256;  // added to numbers in f32 without a rounding that matters
  const auto check_slopes = [&](const Tensor& t, const Numbers& derivative,
                                const std::string& name) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      float& x = host<float>(t)[i];
      const float at = x, above = at + kStep, below = at - kStep;
      x = above;
      const double up = ScanReference(p).loss();
      x = below;
      const double down = ScanReference(p).loss();
      x = at;
      const double slope = (up - down) / (double{above} - double{below});
      EXPECT_NEAR(slope, derivative[static_cast<size_t>(i)], 2e-3 * std::max(1.0, std::abs(slope)))
          << name << " " << i;
    }
  };
  for (size_t i = 0; i < p.fields.size(); ++i) {
    if (p.t.in[i].defined()) check_slopes(p.t.in[i], want.gradient[i], p.fields[i].name);
  }
  for (size_t i = 0; i < p.t.entering.size(); ++i) {
    check_slopes(p.t.entering[i], want.d_entering[i], fmt::format("state {}", i));
  }
}

// Nothing is written; what is written is all there is; every step is a reflection and nothing
// decays.
TEST_P(ScanLaws, AgreesAtTheEndsOfTheStrength) {
  if (!scan().strength) GTEST_SKIP() << "has no such strength";
  for (const double beta : {0.001, 1.0, 1.999}) {
    check({.documents = {0, 300}, .key = 16, .value = 24, .beta = beta, .spread = 0.001});
  }
}

// One key again and again: triangular systems are as full as they get.
TEST_P(ScanLaws, SurvivesRepeatedKeys) {
  if (!scan().repeats) GTEST_SKIP() << "may diverge";
  check({.documents = {0, 100}, .forget = 0.0, .beta = 1.0, .spread = 0.9, .repeat = true},
        scan().exact_when_repeated);
}

}  // namespace
}  // namespace weft::test
