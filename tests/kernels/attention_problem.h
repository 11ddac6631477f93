#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "core/host_access.h"
#include "kernels/attention/attention.h"
#include "tests/kernels/numeric.h"

// Attention and its derivative as plain loops in double, for any positions of the queries among the
// keys of their documents, with or without forget gates.
namespace weft::test {

// One document: as many queries, from position `start` of as many keys; -1: the last ones.
struct AttentionDocument {
  int32_t queries, keys, start = -1;
};
// Documents whose queries are all positions, from their offsets.
inline std::vector<AttentionDocument> whole(const std::vector<int32_t>& offsets) {
  std::vector<AttentionDocument> documents;
  for (size_t d = 0; d + 1 < offsets.size(); ++d) {
    documents.push_back({offsets[d + 1] - offsets[d], offsets[d + 1] - offsets[d]});
  }
  return documents;
}

// Offsets given to the kernel: none where keys are the documents of the queries; where the keys of
// documents lie; and also which of them the queries are.
enum class Ranges : uint8_t { kNone, kKeys, kKeysAndStarts };

struct AttentionCase {
  std::vector<AttentionDocument> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8, window = 0;
  DType dtype = DType::kF32;
  // Typical -log_forget of each head; the last counts for all after it. Empty: no gates.
  Numbers gates = {};
  double size = 1;  // of queries and keys
  bool prune = false;
  Ranges ranges = Ranges::kNone;
};

struct AttentionResults {
  Numbers out, log_sum_exp, dq, dk, dv, d_log_forget;
};
struct AttentionInputs {
  Numbers q, k, v, d_out, gates;
};

inline double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Where a query is: its row, its position, its head, and the first row of its document's keys.
struct AttentionQuery {
  int64_t row, position, head, keys;
};

// Softmax over all keys of a query at once, and the derivative of that. The gradient of the running
// sums of gates goes to d_log_forget.
inline void naive_query(const AttentionInputs& in, const AttentionCase& c, double scale,
                        const AttentionQuery& query, AttentionResults& n) {
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

inline void fill_rows(const Tensor& t, int64_t begin, int64_t end, float value) {
  const int64_t width = t.shape().back();
  for (int64_t i = begin * width; i < end * width; ++i) {
    if (t.dtype() == DType::kF32)
      host<float>(t)[i] = value;
    else
      host<bf16>(t)[i] = to_bf16(value);
  }
}

struct AttentionProblem {
  AttentionProblem(Rig& rig, const AttentionCase& c) : c(c), report(static_cast<size_t>(c.heads)) {
    for (const AttentionDocument& d : c.documents) {
      documents.push_back(documents.back() + d.queries);
      keys.push_back(keys.back() + d.keys);
      starts.push_back(d.start < 0 ? d.keys - d.queries : d.start);
    }
    const int64_t q_rows = documents.back(), k_rows = keys.back();
    q = rig.normal("q", {q_rows, c.heads * c.key}, c.size, c.dtype);
    k = rig.normal("k", {k_rows, c.kv_heads * c.key}, c.size, c.dtype);
    v = rig.normal("v", {k_rows, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {q_rows, c.heads * c.value}, 1, c.dtype);
    log_forget = rig.normal("gates", {k_rows, c.heads});
    for (int64_t i = 0; forgets() && i < log_forget.elements(); ++i) {
      const auto head = std::min(static_cast<size_t>(i % c.heads), c.gates.size() - 1);
      float& gate = host<float>(log_forget)[i];
      gate = static_cast<float>(-c.gates[head] * std::exp(0.3 * gate));
    }
    out = rig.normal("dirt", {q_rows, c.heads * c.value}, 1, c.dtype);
    log_sum_exp = rig.exec.empty({q_rows, c.heads});
    dq = rig.normal("dirt", {q_rows, c.heads * c.key}, 1, c.dtype);
    dk = rig.normal("dirt", {k_rows, c.kv_heads * c.key}, 1, c.dtype);
    dv = rig.normal("dirt", {k_rows, c.kv_heads * c.value}, 1, c.dtype);
    d_log_forget = rig.normal("dirt", {k_rows, c.heads});
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }
  bool forgets() const { return !c.gates.empty(); }

  kernels::Attention attention() const {
    kernels::Attention in{.q = q,
                          .k = k,
                          .v = v,
                          .documents = documents,
                          .heads = c.heads,
                          .kv_heads = c.kv_heads,
                          .key = c.key,
                          .value = c.value,
                          .scale = scale,
                          .window = c.window,
                          .pruning = {.on = c.prune}};
    if (forgets()) in.log_forget = log_forget;
    if (c.ranges != Ranges::kNone) in.key_documents = keys;
    if (c.ranges == Ranges::kKeysAndStarts) in.query_start = starts;
    return in;
  }

  void run(Exec& exec) { run(exec, attention(), out); }
  void run(Exec& exec, const kernels::Attention& in, View to) {
    kernels::attention_forward(exec, in, to, log_sum_exp, report);
    kernels::attention_backward(exec, in, to, log_sum_exp, d_out,
                                {dq, dk, dv, forgets() ? View(d_log_forget) : View{}});
  }

  int64_t seen(size_t document) const {
    const int32_t queries = c.documents[document].queries;
    return queries == 0 ? 0 : starts[document] + queries;
  }
  // Keys after every query, as in a cache that is not full: to be neither read nor left out of the
  // gradients.
  void spoil_unseen() {
    for (size_t d = 0; d < c.documents.size(); ++d) {
      for (const Tensor& t : {k, v, log_forget}) {
        fill_rows(t, keys[d] + seen(d), keys[d + 1], std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  AttentionResults expected() const {
    const AttentionInputs in{numbers(q), numbers(k), numbers(v), numbers(d_out),
                             forgets() ? numbers(log_forget) : Numbers{}};
    const auto zeros = [](const Tensor& t) {
      return Numbers(static_cast<size_t>(t.elements()), 0.0);
    };
    AttentionResults n{zeros(out), zeros(log_sum_exp), zeros(dq),
                       zeros(dk),  zeros(dv),          zeros(d_log_forget)};
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

  void expect_same_bits(const AttentionProblem& other) const {
    EXPECT_TRUE(SameBits(out, other.out));
    EXPECT_TRUE(SameBits(log_sum_exp, other.log_sum_exp));
    EXPECT_TRUE(SameBits(dq, other.dq));
    EXPECT_TRUE(SameBits(dk, other.dk));
    EXPECT_TRUE(SameBits(dv, other.dv));
    EXPECT_TRUE(SameBits(d_log_forget, other.d_log_forget));
  }

  AttentionCase c;
  std::vector<int32_t> documents = {0}, keys = {0}, starts;
  std::vector<kernels::BlockCount> report;
  Tensor q, k, v, d_out, log_forget, out, log_sum_exp, dq, dk, dv, d_log_forget;
  float scale;
};

}  // namespace weft::test
