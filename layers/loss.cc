#include "layers/loss.h"

#include <algorithm>

#include "kernels/cross_entropy.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

// Rows per block: enough to amortize reading the head's weight and gradient once per block, few enough
// that the block's logits stay near the core.
int64_t block_rows(int64_t vocab) {
  constexpr int64_t kLogits = 4 << 20;  // elements
  return std::clamp<int64_t>(kLogits / vocab / 64 * 64, 64, 1024);
}

}  // namespace

LossHead::LossHead(const Build& build, int64_t vocab, Parameter* tied)
    : weight_(tied != nullptr
                  ? *tied
                  : build.store.declare({.name = build.scope + "head.weight",
                                         .global = {vocab, build.hidden},
                                         .splits = {{.dim = 0, .axis = Axis::kTensor}},
                                         .init = Init::normal(kInitDeviation)})) {}

void LossHead::refresh(Exec& exec) const {
  if (packed_version_ == weight_.version) return;
  packed_version_ = weight_.version;
  forward_ = {exec, weight_.value, Transpose::kYes};
  backward_ = {exec, weight_.value, Transpose::kNo};
}

Tensor LossHead::logits(Exec& exec, const Tensor& x) const {
  refresh(exec);
  const Tensor out = exec.empty({x.shape().rows(), weight_.shape[0]});
  kernels::gemm(exec, x, forward_, out);
  return out;
}

LossHead::Result LossHead::forward(Exec& exec, const Tensor& x, const Tensor& targets, float scale,
                                   Gradients gradients) const {
  const int64_t tokens = x.shape().rows(), hidden = x.shape().back(), vocab = weight_.shape[0];
  const bool wanted = gradients == Gradients::kYes;
  refresh(exec);
  const int64_t rows = std::min(block_rows(vocab), tokens);
  Result result;
  if (wanted) result.dx = exec.empty({tokens, hidden});
  const Tensor logits = exec.scratch({rows, vocab});
  const Tensor losses = exec.scratch({rows});
  // In f32 the gradient overwrites the logits; in bf16 it is what the next products multiply.
  const Tensor gradient =
      x.dtype() == DType::kF32 ? logits : exec.scratch({wanted ? rows : 0, vocab}, x.dtype());
  for (int64_t begin = 0; begin < tokens; begin += rows) {
    const int64_t count = std::min(rows, tokens - begin);
    const Tensor part = x.row_range(begin, count);
    const View block = logits.row_range(0, count), d_block = gradient.view().row_range(0, wanted ? count : 0);
    const View loss = losses.view().columns(0, count);
    kernels::gemm(exec, part, forward_, block);
    kernels::cross_entropy(exec, block, targets.view().columns(begin, count), scale, loss,
                           wanted ? d_block : View{});
    for (int64_t i = 0; i < count; ++i) result.loss_sum += loss.as<float>()[i];
    if (!wanted) continue;
    kernels::gemm(exec, d_block, backward_, result.dx.row_range(begin, count));
    kernels::gemm(exec, d_block, part, weight_.grad,
                  {.a = Transpose::kYes, .write = Write::kAccumulate});
  }
  return result;
}

double LossHead::flops_per_token() const {
  return 2.0 * static_cast<double>(weight_.spec.global[0]) *
         static_cast<double>(weight_.spec.global[1]);
}

}  // namespace weft
