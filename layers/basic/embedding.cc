#include "layers/basic/embedding.h"

#include "kernels/model/embedding.h"
#include "kernels/rows/elementwise.h"
#include "layers/basic/token_shards.h"

namespace weft {

Embedding::Embedding(const Build& build, int64_t vocab, float scale, Gradient gradient)
    : table_(table_of(build, vocab)),
      tensor_ranks_(build.tensor_ranks),
      scale_(scale),
      gradient_(gradient) {}

Parameter& Embedding::table_of(const Build& build, int64_t vocab) {
  const std::string name = build.scope + "embed.weight";
  if (Parameter* found = build.store.find(name)) return *found;
  return build.store.declare({.name = name,
                              .global = {vocab, build.hidden},
                              .splits = {{.dim = 0, .axis = Axis::kTensor}},
                              .init = Init::normal(kInitDeviation)});
}

kernels::VocabularySlice Embedding::slice() const {
  return {table_.slices[0].offset[0], table_.spec.global[0]};
}

Tensor Embedding::forward(Exec& exec, const Tensor& tokens, SavedStack& saved) const {
  const Tensor y = exec.empty({tokens.elements(), table_.shape[1]});
  kernels::embedding_forward(exec, tokens, table_.value, y, slice());
  if (scale_ != 1.0f) kernels::scale(exec, y, scale_, y);
  saved.push(Saved{tokens});
  return scatter_tokens(exec, tensor_ranks_, y);  // one rank's rows and zeros
}

void Embedding::backward(Exec& exec, const Tensor& d_scaled, SavedStack& saved) const {
  const auto [tokens] = saved.pop<Saved>();
  Tensor dy = d_scaled;
  if (scale_ != 1.0f) {
    dy = exec.empty(d_scaled.shape());
    kernels::scale(exec, d_scaled, scale_, dy);
  }
  const Tensor all = gather_tokens(exec, tensor_ranks_, dy, tokens.elements());
  if (gradient_ == Gradient::kApart && !apart_.defined()) {
    apart_ = Tensor::zeros(exec.pool, table_.shape, DType::kF32, Label::kGradients);
  }
  kernels::embedding_backward(exec, tokens, all,
                              gradient_ == Gradient::kApart ? apart_ : table_.grad, slice());
}

void Embedding::finish_gradients(Exec& exec) const {
  if (!apart_.defined()) return;
  kernels::add(exec, table_.grad, apart_, table_.grad);
  apart_ = {};
}

}  // namespace weft
