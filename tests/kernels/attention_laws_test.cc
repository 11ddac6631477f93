// Laws of attention, plain and with forget gates, over whole documents and over queries that are
// some of the positions of their keys.
#include <gtest/gtest.h>

#include "tests/kernels/attention_problem.h"

namespace weft::test {
namespace {

enum class Form : uint8_t { kPlain, kForgetting };

class AttentionLaws : public testing::TestWithParam<Form> {
 protected:
  // The case in this form, with its own gates or the form's.
  static AttentionCase in_form(AttentionCase c, Numbers gates = {0.2}) {
    if (GetParam() == Form::kForgetting) c.gates = std::move(gates);
    return c;
  }
  static AttentionCase over_ranges(AttentionCase c, Numbers gates = {0.2}) {
    c.ranges = Ranges::kKeysAndStarts;
    return in_form(std::move(c), std::move(gates));
  }
};
INSTANTIATE_TEST_SUITE_P(Forms, AttentionLaws, testing::Values(Form::kPlain, Form::kForgetting),
                         [](const auto& info) {
                           return std::string(info.param == Form::kPlain ? "Plain" : "Forgetting");
                         });

// f32: sqrt of the few hundred terms of a sum, in roundings, with some room for the exponential;
// the gates' gradients are sums of such sums. bf16: roundings of the output, which backward reads
// again. What no query sees must be exactly zero: its rows of `want` are, and Near compares with
// the largest element, so they are looked at by themselves.
void check(const AttentionCase& c) {
  AttentionResults want;
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    AttentionProblem p(rig, c);
    SCOPED_TRACE(fmt::format("{}, {}, {} queries, {}/{} heads, {} x {}, window {}, gate {}",
                             name_of(isa), name_of(c.dtype), p.documents.back(), c.heads,
                             c.kv_heads, c.key, c.value, c.window,
                             c.gates.empty() ? 0 : c.gates.front()));
    if (want.out.empty()) want = p.expected();
    p.spoil_unseen();
    p.run(rig.exec);
    const double tolerance = c.dtype == DType::kF32 ? 1e-5 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance));
    EXPECT_TRUE(Near(p.log_sum_exp, want.log_sum_exp, 1e-5));
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance));
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance));
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance));
    if (p.forgets()) {
      EXPECT_TRUE(Near(p.d_log_forget, want.d_log_forget, 2 * tolerance));
    }
    for (size_t d = 0; d < c.documents.size(); ++d) {
      for (const Tensor& t : {p.dk, p.dv}) {
        for (const double x :
             numbers(t.view().row_range(p.keys[d] + p.seen(d), c.documents[d].keys - p.seen(d)))) {
          EXPECT_EQ(x, 0.0);
        }
      }
    }
  }
}

TEST_P(AttentionLaws, AgreesWithSoftmaxAtEveryLength) {
  for (const int32_t tokens : {0, 1, 37, 64, 65, 127, 300}) {
    check(in_form({.documents = whole({0, tokens}), .key = 16}));
  }
}

TEST_P(AttentionLaws, AgreesWithSoftmaxAtEveryHeadWidth) {
  for (const int64_t key : {1, 8, 16, 24, 64, 128}) {
    for (const int64_t value : {1, 8, 24, 80, 128}) {
      check(in_form({.documents = whole({0, 150}), .key = key, .value = value}));
      check(
          over_ranges({.documents = {{1, 70}, {5, 66}, {20, 90, 33}}, .key = key, .value = value}));
    }
  }
}

TEST_P(AttentionLaws, KeepsDocumentsApart) {
  check(in_form({.documents = whole({0, 1, 38, 38, 103, 104, 250}),
                 .heads = 2,
                 .kv_heads = 2,
                 .key = 16,
                 .value = 24},
                {0.05, 1.0}));
}

TEST_P(AttentionLaws, SharesKeysAndValuesInAGroup) {
  const Numbers gates = {0.01, 0.1, 1, 2, 0.02, 0.5};  // one for every query head
  check(in_form(
      {.documents = whole({0, 70, 140}), .heads = 6, .kv_heads = 2, .key = 16, .value = 8}, gates));
  for (const int32_t tokens : {70, 200}) {
    check(in_form({.documents = whole({0, tokens}),
                   .heads = 4,
                   .kv_heads = 1,
                   .key = 8,
                   .value = 16,
                   .dtype = DType::kBF16},
                  {0.01, 0.1, 1, 0.3}));
  }
}

const std::vector<AttentionDocument> kDocuments = {
    {0, 0},         // nothing at all
    {1, 1},         // one token without a past
    {1, 300},       // one token and a long cache
    {0, 5},         // keys without queries
    {3, 131},       // a few tokens after a prefix of one more than two blocks
    {37, 200, 70},  // the middle of a gathered sequence
    {64, 64},       // a whole document
    {150, 301, 0},  // the first rank of several
    {7, 700, 600}, {8, 80, 1}, {0, 9, 4}, {129, 260},
};

TEST_P(AttentionLaws, AgreesWithSoftmaxOverTheKeysBeforeEachQuery) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check(over_ranges({.documents = kDocuments, .key = 16, .value = 24, .dtype = dtype}, {0.1}));
    for (const int64_t heads : {4, 6}) {
      check(over_ranges({.documents = kDocuments,
                         .heads = heads,
                         .kv_heads = 2,
                         .key = heads == 4 ? 16 : 13,
                         .dtype = dtype},
                        {0.1}));
    }
  }
}

TEST_P(AttentionLaws, TakesTheLastKeysWhereNoStartsAreGiven) {
  AttentionCase c{.documents = {{1, 70}, {30, 100}, {0, 3}, {65, 65}}, .heads = 2};
  c.ranges = Ranges::kKeys;
  check(in_form(c));
}

// Windows below, at and above the block lengths, so that whole blocks fall away and blocks are cut
// on both sides.
TEST_P(AttentionLaws, SeesOnlyTheWindow) {
  for (const int64_t window : {1, 9, 64, 65, 130, 1000}) {
    check(in_form({.documents = whole({0, 20, 333}),
                   .heads = 2,
                   .kv_heads = 1,
                   .key = 16,
                   .value = 16,
                   .window = window}));
    check(over_ranges({.documents = kDocuments, .heads = 2, .key = 16, .window = window}, {0.3}));
  }
}

// Scores of a few hundred: e^{score} overflows, e^{score - max} does not.
TEST_P(AttentionLaws, SurvivesLargeScores) {
  Rig rig;
  AttentionProblem p(rig,
                     in_form({.documents = whole({0, 200}), .key = 64, .value = 16, .size = 8}));
  p.run(rig.exec);
  const AttentionResults want = p.expected();
  // Scores of size 500 carry an absolute error of 500 roundings.
  EXPECT_TRUE(Near(p.out, want.out, 1e-4));
  EXPECT_TRUE(Near(p.dq, want.dq, 1e-4));
  EXPECT_TRUE(Near(p.dv, want.dv, 1e-4));
}

TEST_P(AttentionLaws, ReadsAndWritesBf16) {
  check(in_form({.documents = whole({0, 65, 190}),
                 .heads = 2,
                 .kv_heads = 2,
                 .key = 24,
                 .value = 64,
                 .dtype = DType::kBF16}));
}

// One or two heads of a long document are dealt out in parts, whose sums are added. The running sum
// of strong gates ends near -8000, where an f32 has steps of 5e-4.
TEST_P(AttentionLaws, SharesALongHeadWhereThereIsLittleElseToDo) {
  check(
      in_form({.documents = whole({0, 2100}), .heads = 2, .kv_heads = 1, .window = 70}, {4, 0.01}));
  check(over_ranges({.documents = {{2100, 2500, 300}}, .heads = 2, .kv_heads = 1, .window = 70},
                    {0.5}));
}

// q, k and v as columns of one fused projection, and the output as columns of a wider matrix.
TEST_P(AttentionLaws, TakesStridedRows) {
  Rig rig;
  AttentionProblem p(
      rig,
      in_form({.documents = whole({0, 70}), .heads = 2, .kv_heads = 1, .key = 8, .value = 24}));
  p.run(rig.exec);
  AttentionProblem strided(rig, p.c);
  const Padded q(rig, "q", 70, 16, DType::kF32), k(rig, "k", 70, 8, DType::kF32),
      v(rig, "v", 70, 24, DType::kF32), out(rig, "dirt", 70, 48, DType::kF32);
  kernels::Attention in = strided.attention();
  in.q = q, in.k = k, in.v = v;
  strided.run(rig.exec, in, out);
  EXPECT_TRUE(SameBits(out.view(), p.out));
  EXPECT_TRUE(out.surroundings_kept());
  strided.out = p.out;
  strided.expect_same_bits(p);
}

TEST_P(AttentionLaws, GivesTheSameBitsForAnyNumberOfThreads) {
  const bool prune = GetParam() == Form::kForgetting;
  const AttentionCase cases[] = {
      in_form({.documents = whole({0, 2100}),
               .heads = 2,
               .kv_heads = 1,
               .key = 8,
               .value = 16,
               .prune = prune},
              {0.5}),
      over_ranges({.documents = {{1, 3000}, {300, 700, 200}, {7, 1100}, {0, 4}},
                   .heads = 4,
                   .kv_heads = 2,
                   .key = 16,
                   .prune = prune},
                  {0.05})};
  for (const AttentionCase& c : cases) {
    for (const Isa isa : available_isas()) {
      Rig one(1, isa);
      AttentionProblem p(one, c);
      p.run(one.exec);
      if (prune && c.ranges == Ranges::kNone) {
        EXPECT_LT(p.report[0].kept, p.report[0].causal);
      }
      for (const int threads : {2, 3}) {
        Rig more(threads, isa);
        AttentionProblem other(more, c);
        other.run(more.exec);
        p.expect_same_bits(other);
      }
    }
  }
}

TEST(ForgettingAttention, IsPlainAttentionWhenNothingIsForgotten) {
  Rig rig;
  const AttentionCase c{.documents = whole({0, 70, 300}), .heads = 2, .key = 16, .gates = {0}};
  AttentionProblem forgetting(rig, c), plain(rig, c);
  forgetting.run(rig.exec);
  kernels::Attention in = plain.attention();
  in.log_forget = {};
  kernels::attention_forward(rig.exec, in, plain.out, plain.log_sum_exp);
  EXPECT_TRUE(SameBits(forgetting.out, plain.out));
  EXPECT_TRUE(SameBits(forgetting.log_sum_exp, plain.log_sum_exp));
}

TEST(AttentionRanges, AreChecked) {
  Rig rig;
  AttentionCase c{.documents = {{4, 9}, {2, 7}}};
  c.ranges = Ranges::kKeysAndStarts;
  AttentionProblem p(rig, c);
  const auto run = [&](auto change) {
    kernels::Attention in = p.attention();
    change(in);
    kernels::attention_forward(rig.exec, in, p.out, p.log_sum_exp);
  };
  const std::vector<int32_t> late = {6, 0}, early = {-1, 0}, one = {0}, few = {0, 3, 16},
                             wrong = {0, 9, 15};
  EXPECT_THROW(run([&](auto& in) { in.query_start = late; }), Error);
  EXPECT_THROW(run([&](auto& in) { in.query_start = early; }), Error);
  EXPECT_THROW(run([&](auto& in) { in.query_start = one; }), Error);
  EXPECT_THROW(run([&](auto& in) { in.query_start = {}, in.key_documents = few; }), Error);
  EXPECT_THROW(run([&](auto& in) { in.key_documents = wrong; }), Error);
  EXPECT_THROW(run([&](auto& in) { in.key_documents = {}; }), Error);
}

}  // namespace
}  // namespace weft::test
