#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/host_access.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/forgetting.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8, window = 0;
  DType dtype = DType::kF32;
  Numbers gates = {0.2};  // typical -log_forget of each head; the last counts for all after it
  double size = 1;        // of queries and keys
  bool prune = false;
};

struct Naive {
  Numbers out, log_sum_exp, dq, dk, dv, d_sums;
};
struct Inputs {
  Numbers q, k, v, d_out, gates;
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Query `t` of head `h`, whose document begins at `begin`: softmax over all its keys at once with
// the bias as a sum of the gates between, and the derivative of that.
void naive_query(const Inputs& in, const Case& c, double scale, int64_t begin, int64_t t, int64_t h,
                 Naive& n) {
  const int64_t kv = h / (c.heads / c.kv_heads);
  const int64_t first = c.window == 0 ? begin : std::max(begin, t - c.window + 1);
  const auto key_at = [&](int64_t j) { return (j * c.kv_heads + kv) * c.key; };
  const auto value_at = [&](int64_t j) { return (j * c.kv_heads + kv) * c.value; };
  const int64_t q_at = (t * c.heads + h) * c.key, o_at = (t * c.heads + h) * c.value;
  Numbers p(static_cast<size_t>(t - first + 1));
  double sum = 0, largest = -1e300, bias = 0;
  for (int64_t j = t; j >= first; --j) {
    p[j - first] = scale * dot(&in.q[q_at], &in.k[key_at(j)], c.key) + bias;
    largest = std::max(largest, p[j - first]);
    bias += in.gates[j * c.heads + h];
  }
  for (double& x : p) sum += x = std::exp(x - largest);
  for (double& x : p) x /= sum;
  n.log_sum_exp[t * c.heads + h] = largest + std::log(sum);
  for (int64_t j = first; j <= t; ++j) {
    for (int64_t b = 0; b < c.value; ++b) n.out[o_at + b] += p[j - first] * in.v[value_at(j) + b];
  }
  const double delta = dot(&in.d_out[o_at], &n.out[o_at], c.value);
  for (int64_t j = first; j <= t; ++j) {
    const double ds = p[j - first] * (dot(&in.d_out[o_at], &in.v[value_at(j)], c.value) - delta);
    n.d_sums[t * c.heads + h] += ds;
    n.d_sums[j * c.heads + h] -= ds;
    for (int64_t b = 0; b < c.value; ++b)
      n.dv[value_at(j) + b] += p[j - first] * in.d_out[o_at + b];
    for (int64_t a = 0; a < c.key; ++a) {
      n.dq[q_at + a] += scale * ds * in.k[key_at(j) + a];
      n.dk[key_at(j) + a] += scale * ds * in.q[q_at + a];
    }
  }
}

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c), report(static_cast<size_t>(c.heads)) {
    const int64_t tokens = c.documents.back();
    q = rig.normal("q", {tokens, c.heads * c.key}, c.size, c.dtype);
    k = rig.normal("k", {tokens, c.kv_heads * c.key}, c.size, c.dtype);
    v = rig.normal("v", {tokens, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {tokens, c.heads * c.value}, 1, c.dtype);
    log_forget = rig.normal("gates", {tokens, c.heads});
    for (int64_t i = 0; i < log_forget.elements(); ++i) {
      const auto head = std::min(static_cast<size_t>(i % c.heads), c.gates.size() - 1);
      float& gate = host<float>(log_forget)[i];
      gate = static_cast<float>(-c.gates[head] * std::exp(0.3 * gate));
    }
    out = rig.exec.empty({tokens, c.heads * c.value}, c.dtype);
    log_sum_exp = rig.exec.empty({tokens, c.heads});
    dq = rig.exec.empty({tokens, c.heads * c.key}, c.dtype);
    dk = rig.exec.empty({tokens, c.kv_heads * c.key}, c.dtype);
    dv = rig.exec.empty({tokens, c.kv_heads * c.value}, c.dtype);
    d_log_forget = rig.exec.empty({tokens, c.heads});
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  kernels::Attention attention() const {
    return {.q = q,
            .k = k,
            .v = v,
            .documents = c.documents,
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .key = c.key,
            .value = c.value,
            .scale = scale,
            .window = c.window,
            .log_forget = log_forget,
            .pruning = {.on = c.prune}};
  }

  void run(Exec& exec) {
    kernels::attention_forward(exec, attention(), out, log_sum_exp, report);
    kernels::attention_backward(exec, attention(), out, log_sum_exp, d_out,
                                {dq, dk, dv, d_log_forget});
  }

  Naive expected() const {
    const Inputs in{numbers(q), numbers(k), numbers(v), numbers(d_out), numbers(log_forget)};
    const auto zeros = [](const Tensor& t) {
      return Numbers(static_cast<size_t>(t.elements()), 0.0);
    };
    Naive n{zeros(out), zeros(log_sum_exp), zeros(dq), zeros(dk), zeros(dv), zeros(d_log_forget)};
    for (size_t d = 0; d + 1 < c.documents.size(); ++d) {
      for (int64_t t = c.documents[d]; t < c.documents[d + 1]; ++t) {
        for (int64_t h = 0; h < c.heads; ++h) naive_query(in, c, scale, c.documents[d], t, h, n);
      }
      for (int64_t t = c.documents[d + 1] - 2; t >= c.documents[d]; --t) {
        for (int64_t h = 0; h < c.heads; ++h)
          n.d_sums[t * c.heads + h] += n.d_sums[(t + 1) * c.heads + h];
      }
    }
    return n;
  }

  void expect_same_bits(const Problem& other) const {
    EXPECT_TRUE(SameBits(out, other.out));
    EXPECT_TRUE(SameBits(log_sum_exp, other.log_sum_exp));
    EXPECT_TRUE(SameBits(dq, other.dq));
    EXPECT_TRUE(SameBits(dk, other.dk));
    EXPECT_TRUE(SameBits(dv, other.dv));
    EXPECT_TRUE(SameBits(d_log_forget, other.d_log_forget));
  }

  Case c;
  std::vector<kernels::BlockCount> report;
  Tensor q, k, v, d_out, log_forget, out, log_sum_exp, dq, dk, dv, d_log_forget;
  float scale;
};

// f32: sqrt of the few hundred terms of a sum, in roundings, with some room for the exponential;
// the gates' gradients are sums of such sums. bf16: roundings of the output, which backward reads
// again.
void check(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {}/{} heads, {} x {}, window {}", name_of(isa),
                             c.documents.back(), c.heads, c.kv_heads, c.key, c.value, c.window));
    Rig rig(2, isa);
    Problem p(rig, c);
    p.run(rig.exec);
    const Naive want = p.expected();
    const double tolerance = c.dtype == DType::kF32 ? 1e-5 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance));
    EXPECT_TRUE(Near(p.log_sum_exp, want.log_sum_exp, 1e-5));
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance));
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance));
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance));
    EXPECT_TRUE(Near(p.d_log_forget, want.d_sums, 2 * tolerance));
  }
}

TEST(ForgettingAttention, AgreesWithBiasedSoftmaxAtEveryLength) {
  for (const int32_t tokens : {1, 37, 65, 300}) check({.documents = {0, tokens}, .key = 16});
}

TEST(ForgettingAttention, KeepsDocumentsApart) {
  check({.documents = {0, 1, 38, 38, 103, 104, 300},
         .heads = 2,
         .kv_heads = 2,
         .key = 16,
         .value = 24,
         .gates = {0.05, 1.0}});
}

TEST(ForgettingAttention, HasAGateForEveryQueryHeadOfAGroup) {
  check({.documents = {0, 70, 140},
         .heads = 6,
         .kv_heads = 2,
         .key = 16,
         .gates = {0.01, 0.1, 1, 2, 0.02, 0.5}});
  check({.documents = {0, 200},
         .heads = 4,
         .kv_heads = 1,
         .value = 16,
         .dtype = DType::kBF16,
         .gates = {0.01, 0.1, 1, 0.3}});
}

TEST(ForgettingAttention, SeesOnlyTheWindow) {
  for (const int64_t window : {1, 9, 65, 130}) {
    check({.documents = {0, 20, 333}, .heads = 2, .key = 16, .value = 16, .window = window});
  }
}

// The running sum ends near -8000, where an f32 has steps of 5e-4, and the head is dealt out in
// parts.
TEST(ForgettingAttention, KeepsItsPrecisionAfterAVeryLongSum) {
  check({.documents = {0, 2100}, .heads = 2, .window = 70, .gates = {4, 0.01}});
}

TEST(ForgettingAttention, IsPlainAttentionWhenNothingIsForgotten) {
  Rig rig;
  const Case c{.documents = {0, 70, 300}, .heads = 2, .key = 16, .gates = {0}};
  Problem forgetting(rig, c), plain(rig, c);
  forgetting.run(rig.exec);
  kernels::Attention in = plain.attention();
  in.log_forget = {};
  kernels::attention_forward(rig.exec, in, plain.out, plain.log_sum_exp);
  EXPECT_TRUE(SameBits(forgetting.out, plain.out));
  EXPECT_TRUE(SameBits(forgetting.log_sum_exp, plain.log_sum_exp));
}

TEST(ForgettingAttention, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 2100}, .heads = 2, .value = 16, .gates = {0.5}, .prune = true};
  for (const Isa isa : available_isas()) {
    Rig one(1, isa);
    Problem p(one, c);
    p.run(one.exec);
    EXPECT_LT(p.report[0].kept, p.report[0].causal);
    for (const int threads : {2, 3}) {
      Rig more(threads, isa);
      Problem other(more, c);
      other.run(more.exec);
      p.expect_same_bits(other);
    }
  }
}

// What every block's entries say one by one.
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

Numbers running_sums(const Problem& p, int64_t head, int64_t begin, int64_t end) {
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
      const Problem p(rig, {.documents = {0, tokens}, .gates = {gate}});
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
int64_t blocks_by_entries(const Problem& p, int64_t head, const kernels::BlockShape& block) {
  const Numbers q = numbers(p.q), k = numbers(p.k);
  const int64_t kv = head / (p.c.heads / p.c.kv_heads);
  int64_t kept = 0;
  for (size_t d = 0; d + 1 < p.c.documents.size(); ++d) {
    const int64_t begin = p.c.documents[d], end = p.c.documents[d + 1];
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
const Case kTrained{.documents = {0, 100, 1124},
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
    Problem pruned(rig, kTrained);
    pruned.run(rig.exec);
    Case all = kTrained;
    all.prune = false;
    Problem whole(rig, all);
    whole.run(rig.exec);

    double kept = 0, causal = 0;
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(pruned.report[h].kept, blocks_by_entries(pruned, h, {128, 64}));
      EXPECT_EQ(whole.report[h].kept, whole.report[h].causal);
      EXPECT_EQ(pruned.report[h].causal, whole.report[h].causal);
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
    const Numbers a = numbers(pruned.out), b = numbers(whole.out);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2 * epsilon * largest);
    EXPECT_TRUE(Near(pruned.dq, whole.dq, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.dk, whole.dk, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.dv, whole.dv, 10 * epsilon));
    EXPECT_TRUE(Near(pruned.d_log_forget, whole.d_log_forget, 10 * epsilon));
  }
}

// What is pruned is not read, neither forward nor backward: values that are no numbers there change
// no bit of what far queries and their keys get.
TEST(Pruning, ReadsNothingOfWhatItLeavesOut) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    Rig rig(2, isa);
    const Case c{.documents = {0, 1100}, .heads = 2, .value = 16, .gates = {0.5}, .prune = true};
    Problem whole(rig, c), spoilt(rig, c);
    constexpr int64_t kSpoilt = 64, kFar = 640;  // a block of keys; queries that have forgotten it
    std::fill_n(host<float>(spoilt.v), kSpoilt * c.kv_heads * c.value, std::nanf(""));
    whole.run(rig.exec);
    spoilt.run(rig.exec);
    const int64_t rest = c.documents.back() - kFar;
    EXPECT_TRUE(std::isnan(host<float>(spoilt.out)[0]));
    for (const auto& [a, b] : {std::pair(whole.out, spoilt.out),
                               {whole.dq, spoilt.dq},
                               {whole.dk, spoilt.dk},
                               {whole.dv, spoilt.dv},
                               {whole.d_log_forget, spoilt.d_log_forget}}) {
      EXPECT_TRUE(SameBits(a.row_range(kFar, rest), b.row_range(kFar, rest)));
    }
  }
}

TEST(Pruning, ChangesNothingWhereGatesAreWeak) {
  Rig rig;
  Case c = kTrained;
  c.gates = {1e-4};
  Problem pruned(rig, c);
  c.prune = false;
  Problem whole(rig, c);
  pruned.run(rig.exec);
  whole.run(rig.exec);
  for (const kernels::BlockCount& count : pruned.report) EXPECT_EQ(count.kept, count.causal);
  pruned.expect_same_bits(whole);
}

TEST(Pruning, TakesABoundOfTheScoresFromOutside) {
  Rig rig;
  Problem p(rig, kTrained);
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
  Case c = kTrained;
  c.window = 300;
  Problem pruned(rig, c);
  pruned.run(rig.exec);
  const Naive want = pruned.expected();
  EXPECT_LT(pruned.report[3].kept, pruned.report[3].causal);
  EXPECT_TRUE(Near(pruned.out, want.out, 2 * std::exp(-10.0)));
}

}  // namespace
}  // namespace weft::test
