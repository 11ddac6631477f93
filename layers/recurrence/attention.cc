#include "layers/recurrence/attention.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "layers/recurrence/gathered_rows.h"

namespace weft {
namespace {

View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

// Tensors [documents, room, width] as rows.
Tensor flat(const Tensor& t) { return t.reshaped({t.shape()[0] * t.shape()[1], t.shape()[2]}); }

// The first `used[d] - dropped[d]` rows of the new buffer are the last ones of the old.
Tensor regrown(Exec& exec, const Tensor& old, int64_t room, const std::vector<int32_t>& used,
               const std::vector<int32_t>& dropped) {
  const Shape& s = old.shape();
  const Tensor grown = exec.empty({s[0], room, s[2]}, old.dtype());
  for (int64_t d = 0; d < s[0]; ++d) {
    const int64_t gone = dropped[static_cast<size_t>(d)],
                  left = used[static_cast<size_t>(d)] - gone;
    if (left == 0) continue;
    kernels::copy(exec, flat(old).view().row_range(d * s[1] + gone, left),
                  flat(grown).view().row_range(d * room, left));
  }
  return grown;
}

std::vector<int32_t> counts_in(const State& cache, int64_t documents) {
  if (cache.empty()) return std::vector<int32_t>(static_cast<size_t>(documents), 0);
  const auto* used = cache.back().data<int32_t>();
  return {used, used + documents};
}

}  // namespace

// Appends the span's rows to the cache and looks at all of it. Rows are never moved inside a
// buffer, only to a new one: what an earlier span saw stays as it was.
AttentionRows::Keys AttentionRows::cached(Exec& exec, const AttentionInputs& in,
                                          const Sequence& sequence, State& cache) const {
  const int64_t documents = sequence.count();
  const bool forgets = in.log_forget.data != nullptr;
  std::vector<int32_t> used = counts_in(cache, documents);
  Keys keys;
  keys.dropped.assign(used.size(), 0);
  int64_t needed = 0, needed_in_window = 0;
  const auto count = [&](int64_t d) {
    return sequence.documents[static_cast<size_t>(d) + 1] -
           sequence.documents[static_cast<size_t>(d)];
  };
  for (int64_t d = 0; d < documents; ++d) {
    const int64_t u = used[static_cast<size_t>(d)];
    const int64_t seen = options_.window > 0 ? std::min(u, options_.window - 1) : u;
    needed = std::max(needed, u + count(d));
    needed_in_window = std::max(needed_in_window, seen + count(d));
  }
  const int64_t room = cache.empty() ? 0 : cache[0].shape()[1];
  if (needed > room) {
    int64_t grown = std::max<int64_t>(needed, 64);
    if (!cache.empty()) {
      grown = 2 * (options_.window > 0 ? needed_in_window : needed);
      for (int64_t d = 0; d < documents && options_.window > 0; ++d) {
        int32_t& u = used[static_cast<size_t>(d)];
        keys.dropped[static_cast<size_t>(d)] =
            std::max<int32_t>(0, u - static_cast<int32_t>(options_.window - 1));
      }
    }
    const auto make = [&](size_t i, ConstView like) {
      if (cache.empty()) return exec.empty({documents, grown, like.width()}, like.dtype);
      return regrown(exec, cache[i], grown, used, keys.dropped);
    };
    State larger = {make(0, in.k)};
    if (!values_in_keys()) larger.push_back(make(1, in.v));
    if (forgets) larger.push_back(make(2, in.log_forget));
    larger.push_back(exec.empty({documents}, DType::kI32));
    cache = std::move(larger);
    for (size_t d = 0; d < used.size(); ++d) used[d] -= keys.dropped[d];
  } else {
    cache.back() = exec.empty({documents}, DType::kI32);
  }
  const int64_t capacity = cache[0].shape()[1];
  keys.k = cache[0];
  if (!values_in_keys()) keys.v = cache[1];
  if (forgets) keys.log_forget = cache[2];
  keys.query_start = used;
  for (int64_t d = 0; d < documents; ++d) {
    keys.documents.push_back(static_cast<int32_t>(d * capacity));
    const int64_t begin = sequence.documents[static_cast<size_t>(d)], n = count(d);
    const int64_t at = d * capacity + used[static_cast<size_t>(d)];
    cache.back().data<int32_t>()[d] = used[static_cast<size_t>(d)] + static_cast<int32_t>(n);
    if (n == 0) continue;
    kernels::copy(exec, in.k.row_range(begin, n), flat(keys.k).view().row_range(at, n));
    if (!values_in_keys()) {
      kernels::copy(exec, in.v.row_range(begin, n), flat(keys.v).view().row_range(at, n));
    }
    if (!forgets) continue;
    kernels::copy(exec, in.log_forget.row_range(begin, n),
                  flat(keys.log_forget).view().row_range(at, n));
  }
  keys.documents.push_back(static_cast<int32_t>(documents * capacity));
  keys.k = flat(keys.k);
  if (!values_in_keys()) keys.v = flat(keys.v);
  if (forgets) keys.log_forget = flat(keys.log_forget);
  return keys;
}

// The rows of all ranks. A document's keys reach from its start to the start of the next one that
// has queries here; what lies behind a query is never read.
AttentionRows::Keys AttentionRows::gathered(Exec& exec, const AttentionInputs& in,
                                            const Sequence& sequence) const {
  Keys keys;
  keys.k = gather_rows(exec, sequence, in.k);
  keys.v = gather_rows(exec, sequence, in.v);
  if (in.log_forget.data != nullptr) keys.log_forget = gather_rows(exec, sequence, in.log_forget);
  const auto rows = static_cast<int64_t>(sequence.chains.size());
  const int64_t length = sequence.whole.back() / rows;
  const auto begin = sequence.spans[static_cast<size_t>(sequence.ranks->rank())].begin;
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    const Chain& chain = sequence.chains[c];
    const int32_t base = sequence.documents[static_cast<size_t>(chain.first)];
    for (int32_t d = chain.first; d <= chain.last; ++d) {
      const int32_t local = sequence.documents[static_cast<size_t>(d)] - base;
      const auto at = static_cast<int32_t>(static_cast<int64_t>(c) * length + begin + local);
      // The border at or before the document's first token here.
      const int32_t start =
          d == chain.first && chain.continues
              ? *(std::upper_bound(sequence.whole.begin(), sequence.whole.end(), at) - 1)
              : at;
      keys.documents.push_back(start);
      keys.query_start.push_back(at - start);
    }
  }
  // Views start at the first document's keys.
  const int32_t first = keys.documents.front();
  const int64_t count = sequence.whole.back() - first;
  for (int32_t& offset : keys.documents) offset -= first;
  keys.documents.push_back(static_cast<int32_t>(count));
  return keys;
}

kernels::Attention AttentionRows::attention(const AttentionInputs& in,
                                            const AttentionPruning& pruning,
                                            const Sequence& sequence, const Keys& keys) const {
  const HeadOptions& h = options_.heads;
  kernels::Attention a{.q = in.q,
                       .k = in.k,
                       .v = in.v,
                       .documents = sequence.documents,
                       .heads = h.heads,
                       .kv_heads = h.kv_heads,
                       .key = h.dk,
                       .value = h.dv,
                       .scale = options_.scale,
                       .window = options_.window,
                       .log_forget = in.log_forget,
                       .pruning = pruning.rule};
  if (!keys.k.defined()) return a;
  const int64_t count = keys.documents.back(), skipped = keys.k.shape()[0] - count;
  a.k = keys.k.view().row_range(skipped, count);
  a.v = values_in_keys() ? a.k.columns(options_.value_begin, h.dv)
                         : keys.v.view().row_range(skipped, count);
  if (keys.log_forget.defined()) a.log_forget = keys.log_forget.view().row_range(skipped, count);
  a.key_documents = keys.documents;
  a.query_start = keys.query_start;
  return a;
}

Tensor AttentionRows::forward(Exec& exec, const AttentionInputs& in,
                              const AttentionPruning& pruning, const Sequence& sequence,
                              State* cache, SavedStack& saved) const {
  const CoreTimer timer(sequence.profile == nullptr ? nullptr : &sequence.profile->forward);
  if (sequence.profile != nullptr) {
    sequence.profile->programs.emplace("attention");
    for (int64_t d = 0; d < sequence.count(); ++d) {
      const int64_t length = sequence.documents[d + 1] - sequence.documents[d];
      sequence.profile->flops += static_cast<double>(length) * flops_per_token(length);
    }
  }
  WEFT_CHECK(!values_in_keys() || (cache != nullptr && in.log_forget.data == nullptr),
             "values inside of keys are for plain caches alone");
  Saved f;
  if (sequence.is_split()) {
    WEFT_CHECK(cache == nullptr, "a cache cannot enter documents that {} ranks share",
               sequence.ranks->size());
    f.keys = gathered(exec, in, sequence);
  } else if (cache != nullptr) {
    f.keys = cached(exec, in, sequence, *cache);
  }
  f.out = exec.empty({sequence.tokens(), options_.heads.heads * options_.heads.dv}, in.v.dtype);
  f.log_sum_exp = exec.empty({sequence.tokens(), options_.heads.heads});
  if (pruning.report != nullptr)
    pruning.report->assign(static_cast<size_t>(options_.heads.heads), {});
  kernels::attention_forward(
      exec, attention(in, pruning, sequence, f.keys), f.out, f.log_sum_exp,
      pruning.report == nullptr ? std::span<kernels::BlockCount>{} : std::span(*pruning.report));
  const Tensor out = f.out;
  saved.push(std::move(f));
  return out;
}

// Gradients of all rows of the cache: those of the span's own tokens go to them, the others back to
// the spans before. d_cache holds f32 [documents, rows, width] for k, v and the forget gates.
void AttentionRows::uncache(Exec& exec, const Keys& keys, const Sequence& sequence,
                            const AttentionGradients& of_keys, State& d_cache,
                            const AttentionGradients& gradients) const {
  const int64_t documents = sequence.count(),
                room = keys.documents.back() / std::max<int64_t>(documents, 1);
  int64_t most = 0;
  for (size_t d = 0; d < keys.query_start.size(); ++d) {
    most = std::max<int64_t>(most, keys.query_start[d] + keys.dropped[d]);
  }
  const View from[] = {of_keys.k, of_keys.v, of_keys.log_forget};
  const View own[] = {gradients.k, gradients.v, gradients.log_forget};
  State entering;
  for (size_t i = 0; i < 3; ++i) {
    if (from[i].data == nullptr) continue;
    const Tensor d_entering = exec.zeros({documents, most, from[i].width()});
    for (int64_t d = 0; d < documents; ++d) {
      const auto at = static_cast<size_t>(d);
      const int64_t begin = sequence.documents[at], n = sequence.documents[at + 1] - begin;
      const int64_t before = keys.query_start[at];
      const View rows = from[i].row_range(d * room, before + n);
      if (!d_cache.empty()) {
        const int64_t left = d_cache[i].shape()[1];
        const View later = flat(d_cache[i]).view().row_range(d * left, before + n);
        kernels::add(exec, rows, later, rows);
      }
      if (n > 0) kernels::copy(exec, rows.row_range(before, n), own[i].row_range(begin, n));
      if (before == 0) continue;
      kernels::copy(exec, rows.row_range(0, before),
                    flat(d_entering).view().row_range(d * most + keys.dropped[at], before));
    }
    entering.push_back(d_entering);
  }
  d_cache = std::move(entering);
}

void AttentionRows::backward(Exec& exec, const AttentionInputs& in, const AttentionPruning& pruning,
                             const Sequence& sequence, ConstView d_out, State* d_cache,
                             const AttentionGradients& gradients, SavedStack& saved) const {
  const CoreTimer timer(sequence.profile == nullptr ? nullptr : &sequence.profile->backward);
  const Saved f = saved.pop<Saved>();
  const kernels::Attention a = attention(in, pruning, sequence, f.keys);
  if (!f.keys.k.defined()) {
    kernels::attention_backward(exec, a, f.out, f.log_sum_exp, d_out,
                                {gradients.q, gradients.k, gradients.v, gradients.log_forget});
    return;
  }
  const Tensor dk = exec.zeros(f.keys.k.shape()),
               dv = exec.zeros({dk.shape()[0], options_.heads.kv_heads * options_.heads.dv});
  const Tensor df = f.keys.log_forget.defined() ? exec.zeros(f.keys.log_forget.shape()) : Tensor{};
  const int64_t count = f.keys.documents.back(), skipped = f.keys.k.shape()[0] - count;
  const auto seen = [&](const Tensor& t) {
    return t.defined() ? t.view().row_range(skipped, count) : View{};
  };
  kernels::attention_backward(exec, a, f.out, f.log_sum_exp, d_out,
                              {gradients.q, seen(dk), seen(dv), seen(df)});
  if (values_in_keys()) {
    const View values = dk.view().columns(options_.value_begin, options_.heads.dv);
    kernels::add(exec, values, dv, values);
  }
  if (sequence.is_split()) {
    kernels::copy(exec, scatter_rows(exec, sequence, dk), gradients.k);
    kernels::copy(exec, scatter_rows(exec, sequence, dv), gradients.v);
    if (df.defined()) kernels::copy(exec, scatter_rows(exec, sequence, df), gradients.log_forget);
    return;
  }
  State none;
  uncache(exec, f.keys, sequence, {{}, dk, values_in_keys() ? View{} : dv.view(), wanted(df)},
          d_cache == nullptr ? none : *d_cache, gradients);
}

double AttentionRows::flops_per_token(int64_t length) const {
  const HeadOptions& h = options_.heads;
  const int64_t seen = options_.window > 0 ? std::min(2 * options_.window, length) : length;
  return static_cast<double>(h.heads * seen * (h.dk + h.dv));
}

}  // namespace weft
