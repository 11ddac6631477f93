#include "layers/basic/loss.h"

#include <algorithm>

#include "core/memory/host_table.h"
#include "kernels/model/cross_entropy.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/channel_shards.h"
#include "layers/basic/token_shards.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

// Rows per block: enough to amortize reading the head's weight and gradient once per block, few
// enough that the block's logits stay near the core.
int64_t block_rows(int64_t vocab) {
  constexpr int64_t kLogits = 4 << 20;  // elements
  return std::clamp<int64_t>(kLogits / std::max<int64_t>(1, vocab) / 64 * 64, 64, 1024);
}

}  // namespace

LossHead::LossHead(const Build& build, int64_t vocab, Parameter* tied)
    : weight_(tied != nullptr ? *tied
                              : build.store.declare({.name = build.scope + "head.weight",
                                                     .global = {vocab, build.hidden},
                                                     .splits = {{.dim = 0, .axis = Axis::kTensor}},
                                                     .init = Init::normal(kInitDeviation)})),
      tensor_ranks_(build.tensor_ranks),
      prepared_(weight_) {}

Tensor LossHead::logits(Exec& exec, const Tensor& x) const {
  const int ranks = tensor_ranks_ == nullptr ? 1 : tensor_ranks_->size();
  const int64_t rows = x.shape().rows(), vocab = weight_.spec.global[0], mine = weight_.shape[0];
  // Slices of the vocabulary have this many entries, but for the last ones.
  const int64_t longest = (vocab + ranks - 1) / ranks;
  const Tensor part = mine == longest ? exec.empty({rows, longest}) : exec.zeros({rows, longest});
  if (mine > 0) kernels::gemm(exec, x, prepared_.forward(exec), part.view().columns(0, mine));
  if (ranks == 1) return part;
  const Tensor all = gather_channels(exec, tensor_ranks_, part);
  if (ranks * longest == vocab) return all;
  const Tensor out = exec.empty({rows, vocab});
  kernels::copy(exec, all.view().columns(0, vocab), out);
  return out;
}

void LossHead::losses_of(Exec& exec, ConstView logits, ConstView targets, float scale, View losses,
                         View d_logits) const {
  if (tensor_ranks_ == nullptr || tensor_ranks_->size() == 1) {
    kernels::cross_entropy(exec, logits, targets, scale, losses, d_logits);
    return;
  }
  const kernels::VocabularySlice slice{weight_.slices[0].offset[0], weight_.spec.global[0]};
  const int64_t rows = logits.rows();
  const Tensor parts = exec.scratch({rows, 3}),
               all = exec.scratch({tensor_ranks_->size(), rows, 3});
  kernels::cross_entropy_parts(exec, logits, targets, slice, parts);
  tensor_ranks_->all_gather(exec, parts, all);
  kernels::cross_entropy_slice(exec, {logits, targets, all, scale, losses, d_logits}, slice);
}

LossHead::Result LossHead::forward(Exec& exec, const Tensor& mine, const Tensor& targets,
                                   float scale, Gradients gradients) const {
  const int64_t tokens = targets.elements(), hidden = mine.shape().back(), vocab = weight_.shape[0];
  const bool wanted = gradients == Gradients::kYes;
  const Tensor x = gather_tokens(exec, tensor_ranks_, mine, tokens);
  const int rank = tensor_ranks_ == nullptr ? 0 : tensor_ranks_->rank(),
            ranks = tensor_ranks_ == nullptr ? 1 : tensor_ranks_->size();
  const IndexRange own = even_part(tokens, rank, ranks);
  // Every rank has these blocks, also where the last slice of the vocabulary is shorter.
  const int64_t rows = std::min(block_rows(weight_.spec.global[0] / ranks), tokens);
  Result result;
  Tensor dx;  // of all rows, this slice's part
  if (wanted) dx = exec.empty({tokens, hidden});
  const Tensor logits = exec.scratch({rows, vocab});
  const Tensor losses = exec.scratch({rows});
  const Tensor loss_sum = exec.zeros({1}, DType::kF64);
  // In f32 the gradient overwrites the logits; in bf16 it is what the next products multiply.
  const Tensor gradient =
      x.dtype() == DType::kF32 ? logits : exec.scratch({wanted ? rows : 0, vocab}, x.dtype());
  for (int64_t begin = 0; begin < tokens; begin += rows) {
    const int64_t count = std::min(rows, tokens - begin);
    const Tensor part = x.row_range(begin, count);
    const View block = logits.row_range(0, count),
               d_block = gradient.view().row_range(0, wanted ? count : 0);
    const View loss = losses.view().columns(0, count);
    if (vocab > 0) kernels::gemm(exec, part, prepared_.forward(exec), block);
    losses_of(exec, block, targets.view().columns(begin, count), scale, loss,
              wanted ? d_block : View{});
    const int64_t first = std::max(begin, own.begin), last = std::min(begin + count, own.end);
    if (first < last) kernels::add_sum(exec, loss.columns(first - begin, last - first), loss_sum);
    if (!wanted) continue;
    if (vocab == 0) {
      kernels::fill(exec, dx.row_range(begin, count), 0.0f);
      continue;
    }
    kernels::gemm(exec, d_block, prepared_.backward(exec), dx.row_range(begin, count));
    kernels::gemm(exec, d_block, part, weight_.grad,
                  {.a = Transpose::kYes, .write = Write::kAccumulate});
  }
  result.loss_sum = download<double>(exec, loss_sum).front();
  if (wanted) result.dx = scatter_tokens(exec, tensor_ranks_, dx);
  return result;
}

double LossHead::flops_per_token() const {
  return 2.0 * static_cast<double>(weight_.spec.global[0]) *
         static_cast<double>(weight_.spec.global[1]);
}

}  // namespace weft
