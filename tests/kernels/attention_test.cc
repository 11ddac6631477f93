#include "kernels/attention/attention.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8, window = 0;
  DType dtype = DType::kF32;
  double size = 1;  // of queries and keys
};

struct Naive {
  Numbers out, log_sum_exp, dq, dk, dv;
};
struct Inputs {
  Numbers q, k, v, d_out;
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Query `t` of head `h`, whose document begins at `begin`: softmax over all its keys at once, and
// the derivative of that.
void naive_query(const Inputs& in, const Case& c, double scale, int64_t begin, int64_t t, int64_t h,
                 Naive& n) {
  const int64_t kv = h / (c.heads / c.kv_heads);
  const int64_t first = c.window == 0 ? begin : std::max(begin, t - c.window + 1);
  const auto key_at = [&](int64_t j) { return (j * c.kv_heads + kv) * c.key; };
  const auto value_at = [&](int64_t j) { return (j * c.kv_heads + kv) * c.value; };
  const int64_t q_at = (t * c.heads + h) * c.key, o_at = (t * c.heads + h) * c.value;
  Numbers p;
  double sum = 0, largest = -1e300;
  for (int64_t j = first; j <= t; ++j) {
    p.push_back(scale * dot(&in.q[q_at], &in.k[key_at(j)], c.key));
    largest = std::max(largest, p.back());
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
    for (int64_t b = 0; b < c.value; ++b)
      n.dv[value_at(j) + b] += p[j - first] * in.d_out[o_at + b];
    for (int64_t a = 0; a < c.key; ++a) {
      n.dq[q_at + a] += scale * ds * in.k[key_at(j) + a];
      n.dk[key_at(j) + a] += scale * ds * in.q[q_at + a];
    }
  }
}

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c) {
    const int64_t tokens = c.documents.back();
    q = rig.normal("q", {tokens, c.heads * c.key}, c.size, c.dtype);
    k = rig.normal("k", {tokens, c.kv_heads * c.key}, c.size, c.dtype);
    v = rig.normal("v", {tokens, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {tokens, c.heads * c.value}, 1, c.dtype);
    out = rig.exec.empty({tokens, c.heads * c.value}, c.dtype);
    log_sum_exp = rig.exec.empty({tokens, c.heads});
    dq = rig.exec.empty({tokens, c.heads * c.key}, c.dtype);
    dk = rig.exec.empty({tokens, c.kv_heads * c.key}, c.dtype);
    dv = rig.exec.empty({tokens, c.kv_heads * c.value}, c.dtype);
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  void run(Exec& exec) {
    const kernels::Attention in{q,          k,     v,       c.documents, c.heads,
                                c.kv_heads, c.key, c.value, scale,       c.window};
    kernels::attention_forward(exec, in, out, log_sum_exp);
    kernels::attention_backward(exec, in, out, log_sum_exp, d_out, {dq, dk, dv});
  }

  Naive expected() const {
    const Inputs in{numbers(q), numbers(k), numbers(v), numbers(d_out)};
    const auto zeros = [](const Tensor& t) {
      return Numbers(static_cast<size_t>(t.elements()), 0.0);
    };
    Naive n{zeros(out), zeros(log_sum_exp), zeros(dq), zeros(dk), zeros(dv)};
    for (size_t d = 0; d + 1 < c.documents.size(); ++d) {
      for (int64_t t = c.documents[d]; t < c.documents[d + 1]; ++t) {
        for (int64_t h = 0; h < c.heads; ++h) naive_query(in, c, scale, c.documents[d], t, h, n);
      }
    }
    return n;
  }

  Case c;
  Tensor q, k, v, d_out, out, log_sum_exp, dq, dk, dv;
  float scale;
};

// f32: sqrt of the few hundred terms of a sum, in roundings, with some room for the exponential.
// bf16: roundings of the output, which backward reads again.
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
  }
}

TEST(Attention, AgreesWithSoftmaxAtEveryLength) {
  for (const int32_t tokens : {1, 37, 64, 65, 127, 300})
    check({.documents = {0, tokens}, .key = 16});
}

TEST(Attention, AgreesWithSoftmaxAtEveryHeadWidth) {
  for (const int64_t key : {8, 16, 24, 64, 128}) {
    for (const int64_t value : {8, 24, 80, 128}) {
      check({.documents = {0, 150}, .key = key, .value = value});
    }
  }
}

TEST(Attention, KeepsDocumentsApart) {
  check({.documents = {0, 1, 38, 38, 103, 104, 250},
         .heads = 2,
         .kv_heads = 2,
         .key = 16,
         .value = 24});
}

TEST(Attention, SharesKeysAndValuesInAGroup) {
  check({.documents = {0, 70, 140}, .heads = 6, .kv_heads = 2, .key = 16, .value = 8});
  check({.documents = {0, 70},
         .heads = 4,
         .kv_heads = 1,
         .key = 8,
         .value = 16,
         .dtype = DType::kBF16});
}

// Windows below, at and above the block lengths, so that whole blocks fall away and blocks are cut
// on both sides.
TEST(Attention, SeesOnlyTheWindow) {
  for (const int64_t window : {1, 9, 64, 65, 130, 1000}) {
    check({.documents = {0, 20, 333},
           .heads = 2,
           .kv_heads = 1,
           .key = 16,
           .value = 16,
           .window = window});
  }
}

// Scores of a few hundred: e^{score} overflows, e^{score - max} does not.
TEST(Attention, SurvivesLargeScores) {
  Rig rig;
  Problem p(rig, {.documents = {0, 200}, .key = 64, .value = 16, .size = 8});
  p.run(rig.exec);
  const Naive want = p.expected();
  // Scores of size 500 carry an absolute error of 500 roundings.
  EXPECT_TRUE(Near(p.out, want.out, 1e-4));
  EXPECT_TRUE(Near(p.dq, want.dq, 1e-4));
  EXPECT_TRUE(Near(p.dv, want.dv, 1e-4));
}

TEST(Attention, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190},
         .heads = 2,
         .kv_heads = 2,
         .key = 24,
         .value = 64,
         .dtype = DType::kBF16});
}

// One or two heads of a long document are dealt out in parts, whose sums are added.
TEST(Attention, SharesALongHeadWhereThereIsLittleElseToDo) {
  check({.documents = {0, 2100}, .heads = 2, .kv_heads = 1, .window = 70});
}

// q, k and v as columns of one fused projection, and the output as columns of a wider matrix.
TEST(Attention, TakesStridedRows) {
  Rig rig;
  Problem p(rig, {.documents = {0, 70}, .heads = 2, .kv_heads = 1, .key = 8, .value = 24});
  p.run(rig.exec);
  const Tensor fused = rig.exec.empty({70, 16 + 8 + 24 + 48 + 3});
  for (int64_t t = 0; t < 70; ++t) {
    float* row = host<float>(fused) + t * fused.shape().back();
    std::copy_n(host<float>(p.q) + t * 16, 16, row);
    std::copy_n(host<float>(p.k) + t * 8, 8, row + 16);
    std::copy_n(host<float>(p.v) + t * 24, 24, row + 24);
  }
  const View q = fused.view().columns(0, 16), k = fused.view().columns(16, 8);
  const View v = fused.view().columns(24, 24), out = fused.view().columns(48, 48);
  const Tensor log_sum_exp = rig.exec.empty({70, 2});
  kernels::attention_forward(rig.exec, {q, k, v, p.c.documents, 2, 1, 8, 24, p.scale, 0}, out,
                             log_sum_exp);
  EXPECT_TRUE(SameBits(out, p.out));
}

TEST(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 2100}, .heads = 2, .kv_heads = 1, .key = 8, .value = 16};
  for (const Isa isa : available_isas()) {
    Rig one(1, isa);
    Problem p(one, c);
    p.run(one.exec);
    for (const int threads : {2, 3}) {
      Rig more(threads, isa);
      Problem other(more, c);
      other.run(more.exec);
      EXPECT_TRUE(SameBits(p.out, other.out));
      EXPECT_TRUE(SameBits(p.log_sum_exp, other.log_sum_exp));
      EXPECT_TRUE(SameBits(p.dq, other.dq));
      EXPECT_TRUE(SameBits(p.dk, other.dk));
      EXPECT_TRUE(SameBits(p.dv, other.dv));
    }
  }
}

}  // namespace
}  // namespace weft::test
