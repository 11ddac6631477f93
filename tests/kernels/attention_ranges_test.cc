// Attention whose queries are some of the positions of its keys only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/host_access.h"
#include "kernels/attention/attention.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

// One document: as many queries, from position `start` of as many keys; -1: the last ones.
struct Document {
  int32_t queries, keys, start = -1;
};

struct Case {
  std::vector<Document> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8, window = 0;
  DType dtype = DType::kF32;
  double gate = 0;  // typical -log_forget; 0: nothing is forgotten
  bool prune = false;
  bool give_start = true;
};

struct Naive {
  Numbers out, log_sum_exp, dq, dk, dv, d_log_forget;
};
struct Inputs {
  Numbers q, k, v, d_out, gates;
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Where a query is: its row, its position, its head, and the first row of its document's keys.
struct Query {
  int64_t row, position, head, keys;
};

// Softmax over all keys of a query at once, and the derivative of that. The gradient of the running
// sums of gates goes to d_log_forget.
void naive_query(const Inputs& in, const Case& c, double scale, const Query& query, Naive& n) {
  const int64_t kv = query.head / (c.heads / c.kv_heads), last = query.keys + query.position;
  const int64_t first =
      query.keys + (c.window == 0 ? 0 : std::max<int64_t>(0, query.position - c.window + 1));
  const int64_t row = query.row * c.heads + query.head;
  const double *q = &in.q[row * c.key], *d_out = &in.d_out[row * c.value];
  double* out = &n.out[row * c.value];
  const auto key = [&](int64_t j) { return (j * c.kv_heads + kv) * c.key; };
  const auto value = [&](int64_t j) { return (j * c.kv_heads + kv) * c.value; };
  Numbers p(static_cast<size_t>(last - first + 1));
  double sum = 0, largest = -1e300, bias = 0;
  for (int64_t j = last; j >= first; --j) {
    p[j - first] = scale * dot(q, &in.k[key(j)], c.key) + bias;
    largest = std::max(largest, p[j - first]);
    if (!in.gates.empty()) bias += in.gates[j * c.heads + query.head];
  }
  for (double& x : p) sum += x = std::exp(x - largest);
  for (double& x : p) x /= sum;
  n.log_sum_exp[row] = largest + std::log(sum);
  for (int64_t j = first; j <= last; ++j) {
    for (int64_t b = 0; b < c.value; ++b) out[b] += p[j - first] * in.v[value(j) + b];
  }
  const double delta = dot(d_out, out, c.value);
  for (int64_t j = first; j <= last; ++j) {
    const double ds = p[j - first] * (dot(d_out, &in.v[value(j)], c.value) - delta);
    n.d_log_forget[last * c.heads + query.head] += ds;
    n.d_log_forget[j * c.heads + query.head] -= ds;
    for (int64_t b = 0; b < c.value; ++b) n.dv[value(j) + b] += p[j - first] * d_out[b];
    for (int64_t a = 0; a < c.key; ++a) {
      n.dq[row * c.key + a] += scale * ds * in.k[key(j) + a];
      n.dk[key(j) + a] += scale * ds * q[a];
    }
  }
}

void fill_rows(const Tensor& t, int64_t begin, int64_t end, float value) {
  const int64_t width = t.shape().back();
  for (int64_t i = begin * width; i < end * width; ++i) {
    if (t.dtype() == DType::kF32)
      host<float>(t)[i] = value;
    else
      host<bf16>(t)[i] = to_bf16(value);
  }
}

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c), report(static_cast<size_t>(c.heads)) {
    for (const Document& d : c.documents) {
      documents.push_back(documents.back() + d.queries);
      keys.push_back(keys.back() + d.keys);
      starts.push_back(d.start < 0 ? d.keys - d.queries : d.start);
    }
    const int64_t q_rows = documents.back(), k_rows = keys.back();
    q = rig.normal("q", {q_rows, c.heads * c.key}, 1, c.dtype);
    k = rig.normal("k", {k_rows, c.kv_heads * c.key}, 1, c.dtype);
    v = rig.normal("v", {k_rows, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {q_rows, c.heads * c.value}, 1, c.dtype);
    log_forget = rig.normal("gates", {k_rows, c.heads});
    for (int64_t i = 0; i < log_forget.elements(); ++i) {
      float& gate = host<float>(log_forget)[i];
      gate = static_cast<float>(-c.gate * std::exp(0.3 * gate));
    }
    out = rig.normal("dirt", {q_rows, c.heads * c.value}, 1, c.dtype);
    log_sum_exp = rig.exec.empty({q_rows, c.heads});
    dq = rig.normal("dirt", {q_rows, c.heads * c.key}, 1, c.dtype);
    dk = rig.normal("dirt", {k_rows, c.kv_heads * c.key}, 1, c.dtype);
    dv = rig.normal("dirt", {k_rows, c.kv_heads * c.value}, 1, c.dtype);
    d_log_forget = rig.normal("dirt", {k_rows, c.heads});
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  kernels::Attention attention() const {
    return {.q = q,
            .k = k,
            .v = v,
            .documents = documents,
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .key = c.key,
            .value = c.value,
            .scale = scale,
            .window = c.window,
            .log_forget = c.gate > 0 ? ConstView(log_forget) : ConstView{},
            .pruning = {.on = c.prune},
            .key_documents = keys,
            .query_start =
                c.give_start ? std::span<const int32_t>(starts) : std::span<const int32_t>{}};
  }

  void run(Exec& exec) {
    kernels::attention_forward(exec, attention(), out, log_sum_exp, report);
    kernels::attention_backward(exec, attention(), out, log_sum_exp, d_out,
                                {dq, dk, dv, c.gate > 0 ? View(d_log_forget) : View{}});
  }

  // Keys after every query, as in a cache that is not full: to be neither read nor left out of the
  // gradients.
  void spoil_unseen() {
    for (size_t d = 0; d < c.documents.size(); ++d) {
      const int32_t queries = c.documents[d].queries;
      const int64_t seen = queries == 0 ? 0 : starts[d] + queries;
      for (const Tensor& t : {k, v, log_forget}) {
        fill_rows(t, keys[d] + seen, keys[d + 1], std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  Naive expected() const {
    const Inputs in{numbers(q), numbers(k), numbers(v), numbers(d_out),
                    c.gate > 0 ? numbers(log_forget) : Numbers{}};
    const auto zeros = [](const Tensor& t) {
      return Numbers(static_cast<size_t>(t.elements()), 0.0);
    };
    Naive n{zeros(out), zeros(log_sum_exp), zeros(dq), zeros(dk), zeros(dv), zeros(d_log_forget)};
    for (size_t d = 0; d < c.documents.size(); ++d) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int32_t i = 0; i < c.documents[d].queries; ++i) {
          naive_query(in, c, scale, {documents[d] + i, starts[d] + i, h, keys[d]}, n);
        }
        for (int64_t t = keys[d + 1] - 2; t >= keys[d]; --t) {
          n.d_log_forget[t * c.heads + h] += n.d_log_forget[(t + 1) * c.heads + h];
        }
      }
    }
    return n;
  }

  Case c;
  std::vector<int32_t> documents = {0}, keys = {0}, starts;
  std::vector<kernels::BlockCount> report;
  Tensor q, k, v, d_out, log_forget, out, log_sum_exp, dq, dk, dv, d_log_forget;
  float scale;
};

// Tolerances of attention_test.cc. What no query sees must be exactly zero: its rows of `want` are,
// and Near compares with the largest element, so they are looked at by themselves.
void check(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {}, {}/{} heads, {} x {}, window {}, gate {}", name_of(isa),
                             name_of(c.dtype), c.heads, c.kv_heads, c.key, c.value, c.window,
                             c.gate));
    Rig rig(2, isa);
    Problem p(rig, c);
    const Naive want = p.expected();
    p.spoil_unseen();
    p.run(rig.exec);
    const double tolerance = c.dtype == DType::kF32 ? 1e-5 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance));
    EXPECT_TRUE(Near(p.log_sum_exp, want.log_sum_exp, 1e-5));
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance));
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance));
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance));
    if (c.gate > 0) {
      EXPECT_TRUE(Near(p.d_log_forget, want.d_log_forget, 2 * tolerance));
    }
    for (size_t d = 0; d < c.documents.size(); ++d) {
      const int32_t queries = c.documents[d].queries;
      const int64_t seen = queries == 0 ? 0 : p.starts[d] + queries;
      for (const Tensor& t : {p.dk, p.dv}) {
        for (const double x :
             numbers(t.view().row_range(p.keys[d] + seen, c.documents[d].keys - seen))) {
          EXPECT_EQ(x, 0.0);
        }
      }
    }
  }
}

const std::vector<Document> kDocuments = {
    {0, 0},         // nothing at all
    {1, 1},         // one token without a past
    {1, 300},       // one token and a long cache
    {0, 5},         // keys that nobody asks for
    {3, 131},       // a few tokens after a prefix of one more than two blocks
    {37, 200, 70},  // the middle of a gathered sequence
    {64, 64},       // a whole document
    {150, 301, 0},  // the first rank of several
    {7, 700, 600}, {8, 80, 1}, {0, 9, 4}, {129, 260},
};

TEST(AttentionRanges, AgreeWithSoftmaxOverTheKeysBeforeEachQuery) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.documents = kDocuments, .key = 16, .value = 24, .dtype = dtype});
    check({.documents = kDocuments, .heads = 6, .kv_heads = 2, .key = 13, .dtype = dtype});
  }
}

TEST(AttentionRanges, ForgetFromTheGateOfTheirOwnPosition) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.documents = kDocuments,
           .heads = 4,
           .kv_heads = 2,
           .key = 16,
           .dtype = dtype,
           .gate = 0.1});
  }
}

TEST(AttentionRanges, SeeOnlyTheWindow) {
  for (const int64_t window : {1, 9, 65, 130, 1000}) {
    check({.documents = kDocuments, .heads = 2, .key = 16, .window = window});
    check({.documents = kDocuments, .heads = 2, .kv_heads = 1, .window = window, .gate = 0.3});
  }
}

TEST(AttentionRanges, WorkAtEveryHeadWidth) {
  for (const int64_t key : {1, 8, 24, 64, 128}) {
    for (const int64_t value : {1, 8, 80, 128}) {
      check({.documents = {{1, 70}, {5, 66}, {20, 90, 33}}, .key = key, .value = value});
    }
  }
}

TEST(AttentionRanges, AreTheLastKeysWhenNotGiven) {
  check({.documents = {{1, 70}, {30, 100}, {0, 3}, {65, 65}},
         .heads = 2,
         .gate = 0.2,
         .give_start = false});
}

// A head of few documents is dealt out in parts.
TEST(AttentionRanges, ShareALongHead) {
  check({.documents = {{2100, 2500, 300}}, .heads = 2, .kv_heads = 1, .window = 70, .gate = 0.5});
}

TEST(AttentionRanges, GiveTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {{1, 3000}, {300, 700, 200}, {7, 1100}, {0, 4}},
               .heads = 4,
               .kv_heads = 2,
               .key = 16,
               .gate = 0.05,
               .prune = true};
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
      EXPECT_TRUE(SameBits(p.d_log_forget, other.d_log_forget));
    }
  }
}

// Blocks of 128 queries x 64 keys: all in the causal range, and those that pruning leaves in it.
TEST(AttentionRanges, PruneWhatLiesFarBeforeTheQueries) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    Rig rig(2, isa);
    Case c{.documents = {{1, 1000}, {7, 800, 500}, {200, 1200, 700}, {0, 10}},
           .heads = 2,
           .key = 16,
           .gate = 0.3,
           .prune = true};
    Problem pruned(rig, c);
    pruned.run(rig.exec);
    const Naive want = pruned.expected();
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

TEST(AttentionRanges, AreChecked) {
  Rig rig;
  Problem p(rig, {.documents = {{4, 9}, {2, 7}}});
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
