#include "layers/recurrence/latent_rows.h"

#include "kernels/matrix/gemm.h"
#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

AttentionRows::Options attention_of(const LatentRows::Options& o) {
  return {.heads = {.heads = o.heads, .kv_heads = 1, .dk = o.shared + o.rank, .dv = o.rank},
          .scale = o.scale,
          .value_begin = o.shared};
}

}  // namespace

LatentRows::LatentRows(const Options& options, Parameter& keys, Parameter& values)
    : o_(options), keys_(keys), values_(values), attention_(attention_of(options)) {}

AttentionInputs LatentRows::inputs(const Saved& f, ConstView rows) const {
  return {f.q, rows, rows.columns(o_.shared, o_.rank)};
}

Tensor LatentRows::forward(Exec& exec, ConstView q, ConstView rows, const Sequence& sequence,
                           State* cache, SavedStack& saved) const {
  const int64_t tokens = sequence.tokens(), query = o_.shared + o_.own;
  Saved f{exec.empty({tokens, o_.heads * width()}, q.dtype), {}};
  for (int64_t h = 0; h < o_.heads; ++h) {
    const View to = f.q.view().columns(h * width(), width());
    if (o_.shared > 0) {
      kernels::copy(exec, q.columns(h * query, o_.shared), to.columns(0, o_.shared));
    }
    kernels::gemm(exec, q.columns(h * query + o_.shared, o_.own),
                  keys_.value.row_range(h * o_.own, o_.own), to.columns(o_.shared, o_.rank));
  }
  f.out = attention_.forward(exec, inputs(f, rows), {}, sequence, cache, saved);
  const Tensor out = exec.empty({tokens, o_.heads * o_.value}, q.dtype);
  for (int64_t h = 0; h < o_.heads; ++h) {
    kernels::gemm(exec, f.out.view().columns(h * o_.rank, o_.rank),
                  values_.value.row_range(h * o_.value, o_.value),
                  out.view().columns(h * o_.value, o_.value), {.b = Transpose::kYes});
  }
  saved.push(std::move(f));
  return out;
}

void LatentRows::backward(Exec& exec, ConstView q, ConstView rows, const Sequence& sequence,
                          ConstView d_out, State* d_cache, View dq, View d_rows,
                          SavedStack& saved) const {
  const int64_t query = o_.shared + o_.own;
  const Saved f = saved.pop<Saved>();
  const Tensor d_latent = exec.empty(f.out.shape(), q.dtype),
               d_wide = exec.empty(f.q.shape(), q.dtype);
  for (int64_t h = 0; h < o_.heads; ++h) {
    const ConstView dy = d_out.columns(h * o_.value, o_.value);
    kernels::gemm(exec, dy, values_.value.row_range(h * o_.value, o_.value),
                  d_latent.view().columns(h * o_.rank, o_.rank));
    kernels::gemm(exec, dy, f.out.view().columns(h * o_.rank, o_.rank),
                  values_.grad.row_range(h * o_.value, o_.value),
                  {.a = Transpose::kYes, .write = Write::kAccumulate});
  }
  attention_.backward(exec, inputs(f, rows), {}, sequence, d_latent, d_cache, {d_wide, d_rows, {}},
                      saved);
  for (int64_t h = 0; h < o_.heads; ++h) {
    const View from = d_wide.view().columns(h * width(), width());
    const View own = from.columns(o_.shared, o_.rank);
    if (o_.shared > 0) {
      kernels::copy(exec, from.columns(0, o_.shared), dq.columns(h * query, o_.shared));
    }
    kernels::gemm(exec, own, keys_.value.row_range(h * o_.own, o_.own),
                  dq.columns(h * query + o_.shared, o_.own), {.b = Transpose::kYes});
    kernels::gemm(exec, q.columns(h * query + o_.shared, o_.own), own,
                  keys_.grad.row_range(h * o_.own, o_.own),
                  {.a = Transpose::kYes, .write = Write::kAccumulate});
  }
}

}  // namespace weft
