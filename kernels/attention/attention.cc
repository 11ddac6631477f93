#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_ranges.h"
#include "kernels/attention/cpu/attention.h"
#include "kernels/scan/scan_checks.h"

namespace weft::kernels {
namespace {

void check_rows(const Attention& in, const char* name, const ConstView& x, int64_t rows,
                int64_t width, FieldType type) {
  check_field({"attention", "", name, rows, width, type, FieldRows::kTokens, in.q.dtype}, x);
}

void check_ranges(const Attention& in) {
  const int64_t documents = documents_of(in), keys = in.k.rows();
  if (!in.key_documents.empty()) {
    WEFT_CHECK(in.key_documents.size() == in.documents.size(),
               "attention: {} offsets of keys, {} of queries", in.key_documents.size(),
               in.documents.size());
    WEFT_CHECK(in.key_documents.front() == 0 && in.key_documents.back() == keys,
               "attention: key offsets must go from 0 to {} keys", keys);
  }
  WEFT_CHECK(in.query_start.empty() || static_cast<int64_t>(in.query_start.size()) == documents,
             "attention: {} first queries of {} documents", in.query_start.size(), documents);
  for (int64_t d = 0; d < documents; ++d) {
    const AttentionRange range = range_of(in, d);
    WEFT_CHECK(range.start >= 0 && range.start + range.queries.count <= range.keys.count,
               "attention: document {} has {} queries from position {} on, but {} keys", d,
               range.queries.count, range.start, range.keys.count);
  }
}

void check_attention(const Attention& in, const ConstView& out, const ConstView& log_sum_exp) {
  const int64_t tokens = in.q.rows(), keys = in.key_documents.empty() ? tokens : in.k.rows();
  check_head_counts("attention", in.heads, in.kv_heads, in.key, in.value);
  check_rows(in, "q", in.q, tokens, in.heads * in.key, FieldType::kScan);
  check_rows(in, "k", in.k, keys, in.kv_heads * in.key, FieldType::kScan);
  check_rows(in, "v", in.v, keys, in.kv_heads * in.value, FieldType::kScan);
  check_documents("attention", in.documents, tokens);
  check_ranges(in);
  WEFT_CHECK(in.window >= 0, "attention: a window of {} keys", in.window);
  check_rows(in, "out", out, tokens, in.heads * in.value, FieldType::kScanOrF32);
  check_rows(in, "log_sum_exp", log_sum_exp, tokens, in.heads, FieldType::kF32);
  if (given(in.log_forget)) {
    check_rows(in, "log_forget", in.log_forget, keys, in.heads, FieldType::kF32);
  }
  if (!in.pruning.on) return;
  WEFT_CHECK(given(in.log_forget), "attention: pruning without log_forget has no measure");
  WEFT_CHECK(in.pruning.log_epsilon < 0, "attention: pruning with log epsilon {}, not below 0",
             in.pruning.log_epsilon);
  WEFT_CHECK(!given(in.pruning.bound) || in.pruning.bound.shape.elements() == in.heads,
             "attention: {} bounds of scores for {} heads", in.pruning.bound.shape.elements(),
             in.heads);
}

void check_gradients(const Attention& in, const ConstView& d_out,
                     const AttentionGradients& gradients) {
  constexpr FieldType type = FieldType::kScanOrF32;
  const int64_t tokens = in.q.rows(), keys = in.k.rows();
  check_rows(in, "d_out", d_out, tokens, in.heads * in.value, type);
  check_rows(in, "dq", gradients.dq, tokens, in.heads * in.key, type);
  check_rows(in, "dk", gradients.dk, keys, in.kv_heads * in.key, type);
  check_rows(in, "dv", gradients.dv, keys, in.kv_heads * in.value, type);
  WEFT_CHECK(given(in.log_forget) == given(gradients.d_log_forget),
             "attention: log_forget and d_log_forget are given together");
  if (given(in.log_forget)) {
    check_rows(in, "d_log_forget", gradients.d_log_forget, keys, in.heads, FieldType::kF32);
  }
}

// Pairs of a query and a key that it sees, of one head. Pruning leaves out some of them.
double pairs_of(const Attention& in) {
  double pairs = 0;
  for (int64_t d = 0; d < documents_of(in); ++d) {
    const AttentionRange range = range_of(in, d);
    // Query i sees start + i + 1 keys, or the window.
    const int64_t queries = range.queries.count, first = range.start + 1;
    const int64_t rising =
        in.window == 0 ? queries : std::clamp<int64_t>(in.window - first, 0, queries);
    pairs += static_cast<double>(rising) * static_cast<double>(2 * first + rising - 1) / 2 +
             static_cast<double>(queries - rising) * static_cast<double>(in.window);
  }
  return pairs;
}

// `each`: sums and products per pair, besides an exponential and its sum.
double flops_of(const Attention& in, int64_t each) {
  return pairs_of(in) * static_cast<double>(in.heads * (each + 4));
}

}  // namespace

void attention_forward(Exec& exec, const Attention& in, View out, View log_sum_exp,
                       std::span<BlockCount> report) {
  check_attention(in, out, log_sum_exp);
  WEFT_CHECK(report.empty() || static_cast<int64_t>(report.size()) == in.heads,
             "attention: a report of {} entries for {} heads", report.size(), in.heads);
  dispatch(exec,
           {.name = "attention_forward",
            .type = in.q.dtype,
            .flops = flops_of(in, 2 * (in.key + in.value)),
            .read = bytes_of(in.q, in.k, in.v, in.log_forget),
            .written = bytes_of(out, log_sum_exp)},
           cpu::attention_forward, in, out, log_sum_exp, report);
}

void attention_backward(Exec& exec, const Attention& in, ConstView out, ConstView log_sum_exp,
                        ConstView d_out, const AttentionGradients& gradients) {
  check_attention(in, out, log_sum_exp);
  check_gradients(in, d_out, gradients);
  dispatch(exec,
           {.name = "attention_backward",
            .type = in.q.dtype,
            .flops = flops_of(in, 6 * in.key + 4 * in.value),
            .read = bytes_of(in.q, in.k, in.v, in.log_forget, out, log_sum_exp, d_out),
            .written = bytes_of(gradients.dq, gradients.dk, gradients.dv, gradients.d_log_forget)},
           cpu::attention_backward, in, out, log_sum_exp, d_out, gradients);
}

}  // namespace weft::kernels
