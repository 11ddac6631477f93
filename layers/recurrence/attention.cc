#include "layers/recurrence/attention.h"

#include <algorithm>
#include <optional>

#include "kernels/rows/elementwise.h"

namespace weft {

std::vector<ConstView> AttentionRows::rows(const AttentionInputs& in) const {
  std::vector<ConstView> kinds = {in.k};
  if (!values_in_keys()) kinds.push_back(in.v);
  if (in.log_forget.data != nullptr) kinds.push_back(in.log_forget);
  return kinds;
}

std::vector<View> AttentionRows::rows(const AttentionGradients& gradients) const {
  std::vector<View> kinds = {gradients.k};
  if (!values_in_keys()) kinds.push_back(gradients.v);
  if (gradients.log_forget.data != nullptr) kinds.push_back(gradients.log_forget);
  return kinds;
}

kernels::Attention AttentionRows::attention(const AttentionInputs& in,
                                            const AttentionPruning& pruning,
                                            const Sequence& sequence, const KeyRows& keys) const {
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
  if (keys.own()) return a;
  a.k = keys.rows[0];
  a.v = values_in_keys() ? a.k.columns(options_.value_begin, h.dv) : ConstView(keys.rows[1]);
  if (in.log_forget.data != nullptr) a.log_forget = keys.rows.back();
  a.key_documents = keys.documents;
  a.query_start = keys.query_start;
  return a;
}

void AttentionRows::record(Exec& exec, const AttentionInputs& in, const Sequence& sequence,
                           const State& entering, const State& cache) const {
  std::vector<RowRange> documents;
  for (size_t d = 0; d + 1 < sequence.documents.size(); ++d) {
    const int64_t end = sequence.documents[d + 1];
    documents.push_back({end - reach(end - sequence.documents[d]), end});
  }
  sequence.records->push_back({this,
                               {{}, rows_of(exec, rows(in), documents)},
                               entering,
                               cached_rows(exec, cache, options_.window)});
}

Tensor AttentionRows::forward(Exec& exec, const AttentionInputs& in,
                              const AttentionPruning& pruning, const Sequence& sequence,
                              State* cache, SavedStack& saved) const {
  const CoreTimer timer(sequence.profile == nullptr ? nullptr : &sequence.profile->forward);
  if (sequence.profile != nullptr) {
    sequence.profile->programs.emplace(program());
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
    f.seen = seen_rows(sequence, options_.window);
    RowExchange exchange(exec, *sequence.ranks, chain_rows(exec, rows(in), sequence, f.seen),
                         f.seen, sequence.travel);
    f.keys = append_to_chains(exec, rows(in), sequence, exchange.state(exec, *this));
  } else if (cache != nullptr) {
    State entering;
    if (sequence.records != nullptr) entering = cached_rows(exec, *cache, options_.window);
    f.keys = append_to_cache(exec, rows(in), sequence, options_.window, *cache);
    if (sequence.records != nullptr) record(exec, in, sequence, entering, *cache);
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

void AttentionRows::backward(Exec& exec, const AttentionInputs& in, const AttentionPruning& pruning,
                             const Sequence& sequence, ConstView d_out, State* d_cache,
                             const AttentionGradients& gradients, SavedStack& saved) const {
  const CoreTimer timer(sequence.profile == nullptr ? nullptr : &sequence.profile->backward);
  const Saved f = saved.pop<Saved>();
  const kernels::Attention a = attention(in, pruning, sequence, f.keys);
  if (f.keys.own() && !sequence.is_split()) {
    kernels::attention_backward(exec, a, f.out, f.log_sum_exp, d_out,
                                {gradients.q, gradients.k, gradients.v, gradients.log_forget});
    return;
  }
  // Gradients of all rows that were seen, in f32 until those from other spans are added.
  const int64_t count = a.k.rows();
  const Tensor dk = exec.empty({count, a.k.width()}),
               dv = exec.empty({count, options_.heads.kv_heads * options_.heads.dv});
  const Tensor df =
      in.log_forget.data == nullptr ? Tensor{} : exec.empty({count, options_.heads.heads});
  kernels::attention_backward(exec, a, f.out, f.log_sum_exp, d_out,
                              {gradients.q, dk, dv, df.defined() ? df.view() : View{}});
  State d = {dk};
  if (values_in_keys()) {
    const View values = dk.view().columns(options_.value_begin, options_.heads.dv);
    kernels::add(exec, values, dv, values);
  } else {
    d.push_back(dv);
  }
  if (df.defined()) d.push_back(df);
  if (sequence.is_split()) {
    saved.hold();
    RowGradientExchange exchange(exec, *sequence.ranks, *this,
                                 chain_gradients(exec, f.keys, sequence, d), f.seen,
                                 sequence.travel);
    saved.run_held(exec);  // gradients of weights above, while those of the rows travel
    add_chain_gradients(exec, f.keys, sequence, exchange.gradient(exec), d);
  } else {
    State none;
    cache_gradients(exec, f.keys, sequence, d, d_cache == nullptr ? none : *d_cache);
  }
  own_gradients(exec, f.keys, sequence, d, rows(gradients));
}

double AttentionRows::flops_per_token(int64_t length) const {
  const HeadOptions& h = options_.heads;
  const int64_t seen = options_.window > 0 ? std::min(2 * options_.window, length) : length;
  return static_cast<double>(h.heads * seen * (h.dk + h.dv));
}

}  // namespace weft
