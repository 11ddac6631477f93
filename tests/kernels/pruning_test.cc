#include <gtest/gtest.h>

#include "kernels/attention/forgetting.h"
#include "tests/kernels/attention_problem.h"

namespace weft::test {
namespace {

// First blocks found by looking at every entry.
std::vector<int32_t> first_blocks_by_entries(const Numbers& c, double threshold,
                                             const kernels::BlockShape& block) {
  std::vector<int32_t> first;
  const auto tokens = static_cast<int64_t>(c.size());
  for (int64_t top = 0; top < tokens; top += block.queries) {
    int32_t found = -1;
    for (int64_t left = 0; found < 0; left += block.keys) {
      for (int64_t i = top; i < std::min(tokens, top + block.queries) && found < 0; ++i) {
        for (int64_t j = left; j < std::min(tokens, left + block.keys); ++j) {
          if (c[i] - c[j] >= threshold) found = static_cast<int32_t>(left / block.keys);
        }
      }
    }
    first.push_back(found);
  }
  return first;
}

Numbers running_sums(const AttentionProblem& p, int64_t head, int64_t begin, int64_t end) {
  Numbers c;
  double sum = 0;
  for (int64_t t = begin; t < end; ++t)
    c.push_back(sum += host<float>(p.log_forget)[t * p.c.heads + head]);
  return c;
}

TEST(Pruning, FindsTheBlocksThatALookAtEveryEntryFinds) {
  Rig rig;
  for (const int32_t tokens : {1, 37, 65, 300}) {
    for (const double gate : {0.02, 0.3, 3.0}) {
      const AttentionProblem p(rig, {.documents = whole({0, tokens}), .gates = {gate}});
      const Numbers c = running_sums(p, 0, 0, tokens);
      for (const kernels::BlockShape block : {kernels::BlockShape{16, 32}, {128, 64}, {7, 3}}) {
        for (const double threshold : {-0.5, -5.0, -40.0}) {
          std::vector<int32_t> first(
              static_cast<size_t>((tokens + block.queries - 1) / block.queries));
          kernels::find_first_blocks(c, threshold, block, first);
          EXPECT_EQ(first, first_blocks_by_entries(c, threshold, block));
        }
      }
    }
  }
}

// Blocks of queries x keys that an entry by entry search with the largest norms leaves.
int64_t blocks_by_entries(const AttentionProblem& p, int64_t head,
                          const kernels::BlockShape& block) {
  const Numbers q = numbers(p.q), k = numbers(p.k);
  const int64_t kv = head / (p.c.heads / p.c.kv_heads);
  int64_t kept = 0;
  for (size_t d = 0; d + 1 < p.documents.size(); ++d) {
    const int64_t begin = p.documents[d], end = p.documents[d + 1];
    double largest_q = 0, largest_k = 0;
    for (int64_t t = begin; t < end; ++t) {
      const double* row_q = &q[(t * p.c.heads + head) * p.c.key];
      const double* row_k = &k[(t * p.c.kv_heads + kv) * p.c.key];
      largest_q = std::max(largest_q, std::sqrt(dot(row_q, row_q, p.c.key)));
      largest_k = std::max(largest_k, std::sqrt(dot(row_k, row_k, p.c.key)));
    }
    const double bound = p.scale * largest_q * largest_k;
    const double threshold = -2 * bound - std::log(static_cast<double>(end - begin)) - 10;
    const auto first = first_blocks_by_entries(running_sums(p, head, begin, end), threshold, block);
    for (int64_t top = 0; top < end - begin; top += block.queries) {
      const int64_t last = std::min(end - begin, top + block.queries);
      kept += (last + block.keys - 1) / block.keys - first[top / block.queries];
    }
  }
  return kept;
}

// Gates as trained heads have them, from far to near sight.
const AttentionCase kTrained{.documents = whole({0, 100, 1124}),
                             .heads = 4,
                             .kv_heads = 2,
                             .key = 16,
                             .value = 16,
                             .gates = {0.05, 0.1, 0.2, 0.5},
                             .size = 0.5,
                             .prune = true};

TEST(Pruning, LeavesOutBlocksAndKeepsItsPromise) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    Rig rig(2, isa);
    AttentionProblem pruned(rig, kTrained);
    pruned.run(rig.exec);
    AttentionCase all = kTrained;
    all.prune = false;
    AttentionProblem all_blocks(rig, all);
    all_blocks.run(rig.exec);

    double kept = 0, causal = 0;
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(pruned.report[h].kept, blocks_by_entries(pruned, h, {128, 64}));
      EXPECT_EQ(all_blocks.report[h].kept, all_blocks.report[h].causal);
      EXPECT_EQ(pruned.report[h].causal, all_blocks.report[h].causal);
      kept += static_cast<double>(pruned.report[h].kept);
      causal += static_cast<double>(pruned.report[h].causal);
    }
    EXPECT_LT(kept, 0.65 * causal);
    EXPECT_LT(static_cast<double>(pruned.report[3].kept),
              0.45 * static_cast<double>(pruned.report[3].causal));

    // A mass of epsilon moves from some values to others: at most 2 epsilon max|v|.
    const double epsilon = std::exp(-10.0);
    double largest = 0;
    for (const double x : numbers(pruned.v)) largest = std::max(largest, std::abs(x));
    const Numbers a = numbers(pruned.out), b = numbers(all_blocks.out);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2 * epsilon * largest);
    EXPECT_TRUE(Near(pruned.dq, all_blocks.dq, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.dk, all_blocks.dk, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.dv, all_blocks.dv, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.d_log_forget, all_blocks.d_log_forget, 10 * epsilon));
  }
}

// Pruned blocks are not read, neither forward nor backward: values that are no numbers there change
// no bit of what far queries and their keys get.
TEST(Pruning, ReadsNothingOfWhatItLeavesOut) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    Rig rig(2, isa);
    const AttentionCase c{
        .documents = whole({0, 1100}), .heads = 2, .value = 16, .gates = {0.5}, .prune = true};
    AttentionProblem all_blocks(rig, c), spoilt(rig, c);
    constexpr int64_t kSpoilt = 64, kFar = 640;  // a block of keys; queries that have forgotten it
    std::fill_n(host<float>(spoilt.v), kSpoilt * c.kv_heads * c.value, std::nanf(""));
    all_blocks.run(rig.exec);
    spoilt.run(rig.exec);
    const int64_t rest = spoilt.documents.back() - kFar;
    EXPECT_TRUE(std::isnan(host<float>(spoilt.out)[0]));
    for (const auto& [a, b] : {std::pair(all_blocks.out, spoilt.out),
                               {all_blocks.dq, spoilt.dq},
                               {all_blocks.dk, spoilt.dk},
                               {all_blocks.dv, spoilt.dv},
                               {all_blocks.d_log_forget, spoilt.d_log_forget}}) {
      EXPECT_TRUE(SameBits(a.row_range(kFar, rest), b.row_range(kFar, rest)));
    }
  }
}

TEST(Pruning, ChangesNothingWhereGatesAreWeak) {
  Rig rig;
  AttentionCase c = kTrained;
  c.gates = {1e-4};
  AttentionProblem pruned(rig, c);
  c.prune = false;
  AttentionProblem all_blocks(rig, c);
  pruned.run(rig.exec);
  all_blocks.run(rig.exec);
  for (const kernels::BlockCount& count : pruned.report) EXPECT_EQ(count.kept, count.causal);
  pruned.expect_same_bits(all_blocks);
}

TEST(Pruning, TakesABoundOfTheScoresFromOutside) {
  Rig rig;
  AttentionProblem p(rig, kTrained);
  const Tensor bounds = rig.exec.empty({4});
  std::fill_n(host<float>(bounds), 4, 1000.0f);
  kernels::Attention in = p.attention();
  in.pruning.bound = bounds;
  kernels::attention_forward(rig.exec, in, p.out, p.log_sum_exp, p.report);
  for (const kernels::BlockCount& count : p.report) EXPECT_EQ(count.kept, count.causal);
  std::fill_n(host<float>(bounds), 4, 1.0f);
  kernels::attention_forward(rig.exec, in, p.out, p.log_sum_exp, p.report);
  for (const kernels::BlockCount& count : p.report) EXPECT_LT(count.kept, count.causal);
}

TEST(Pruning, WorksInsideAWindow) {
  Rig rig;
  AttentionCase c = kTrained;
  c.window = 300;
  AttentionProblem pruned(rig, c);
  pruned.run(rig.exec);
  const AttentionResults want = pruned.expected();
  EXPECT_LT(pruned.report[3].kept, pruned.report[3].causal);
  EXPECT_TRUE(Near(pruned.out, want.out, 2 * std::exp(-10.0)));
}

// Blocks of 128 queries x 64 keys: all in the causal range, and those that pruning leaves in it.
TEST(Pruning, LeavesOutWhatLiesFarBeforeTheQueriesOfARange) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    Rig rig(2, isa);
    const AttentionCase c{.documents = {{1, 1000}, {7, 800, 500}, {200, 1200, 700}, {0, 10}},
                          .heads = 2,
                          .key = 16,
                          .gates = {0.3},
                          .prune = true,
                          .ranges = Ranges::kKeysAndStarts};
    AttentionProblem pruned(rig, c);
    pruned.run(rig.exec);
    const AttentionResults want = pruned.expected();
    for (const kernels::BlockCount& count : pruned.report) {
      // 1000 keys; 507; 828 and 900.
      EXPECT_EQ(count.causal, 16 + 8 + 13 + 15);
      EXPECT_LT(count.kept, count.causal / 2);
    }
    const double epsilon = std::exp(-10.0);
    EXPECT_TRUE(Near(pruned.out, want.out, 2 * epsilon));
    EXPECT_TRUE(Near(pruned.dq, want.dq, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.dk, want.dk, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.dv, want.dv, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.d_log_forget, want.d_log_forget, 10 * epsilon));
  }
}

}  // namespace
}  // namespace weft::test
