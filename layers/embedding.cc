#include "layers/embedding.h"

#include "kernels/embedding.h"

namespace weft {

Embedding::Embedding(const Build& build, int64_t vocab)
    : table_(build.store.declare({.name = build.scope + "embed.weight",
                                  .global = {vocab, build.hidden},
                                  .splits = {{.dim = 0, .axis = Axis::kTensor}},
                                  .init = Init::normal(kInitDeviation)})) {}

Tensor Embedding::forward(Exec& exec, const Tensor& tokens, SavedStack& saved) const {
  const Tensor y = exec.empty({tokens.elements(), table_.shape[1]});
  kernels::embedding_forward(exec, tokens, table_.value, y);
  saved.push(Saved{tokens});
  return y;
}

void Embedding::backward(Exec& exec, const Tensor& dy, SavedStack& saved) const {
  const auto [tokens] = saved.pop<Saved>();
  kernels::embedding_backward(exec, tokens, dy, table_.grad);
}

}  // namespace weft
