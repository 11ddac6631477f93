#pragma once

#include "core/saved.h"
#include "kernels/vocabulary.h"
#include "layers/build.h"

namespace weft {

// y [tokens, hidden] f32 = scale * table [vocab, hidden] at the token ids: the start of the residual stream.
//
// Tensor ranks hold slices of the vocabulary. All are given all tokens of the span; y and dy are those of
// this rank's part of them (layers/token_shards.h).
class Embedding {
 public:
  Embedding(const Build& build, int64_t vocab, float scale = 1.0f);

  Tensor forward(Exec& exec, const Tensor& tokens, SavedStack& saved) const;
  void backward(Exec& exec, const Tensor& dy, SavedStack& saved) const;

  Parameter& table() const { return table_; }

 private:
  struct Saved {
    Tensor tokens;
  };
  kernels::VocabularySlice slice() const;

  Parameter& table_;
  Communicator* tensor_ranks_;
  float scale_;
};

}  // namespace weft
