#pragma once

#include "core/saved.h"
#include "layers/build.h"

namespace weft {

// y [tokens, hidden] f32 = table [vocab, hidden] at the token ids: the start of the residual stream.
class Embedding {
 public:
  Embedding(const Build& build, int64_t vocab);

  Tensor forward(Exec& exec, const Tensor& tokens, SavedStack& saved) const;
  void backward(Exec& exec, const Tensor& dy, SavedStack& saved) const;

  Parameter& table() const { return table_; }

 private:
  struct Saved {
    Tensor tokens;
  };
  Parameter& table_;
};

}  // namespace weft
