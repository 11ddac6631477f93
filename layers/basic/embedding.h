#pragma once

#include "core/memory/saved.h"
#include "kernels/model/vocabulary.h"
#include "layers/context/build.h"

namespace weft {

// y [tokens, hidden] f32 = scale * table [vocab, hidden] at the token ids: the start of the
// residual stream.
//
// Tensor ranks hold slices of the vocabulary. All are given all tokens of the span; y and dy are
// those of this rank's part of them (layers/basic/token_shards.h).
class Embedding {
 public:
  // Where a head of this rank multiplies by the same table, the gradient from the lookups is kept
  // apart until the step's last backward: then it is the same sum of two as when the head is on
  // another pipeline stage.
  enum class Gradient : uint8_t { kInTable, kApart };
  Embedding(const Build& build, int64_t vocab, float scale = 1.0f,
            Gradient gradient = Gradient::kInTable);

  // The table, declared by the first that needs it: the embedding, or a tied head on another stage.
  static Parameter& table_of(const Build& build, int64_t vocab);

  Tensor forward(Exec& exec, const Tensor& tokens, SavedStack& saved) const;
  void backward(Exec& exec, const Tensor& dy, SavedStack& saved) const;
  void finish_gradients(Exec& exec) const;  // after the last backward of a step

  Parameter& table() const { return table_; }

 private:
  struct Saved {
    Tensor tokens;
  };
  kernels::VocabularySlice slice() const;

  Parameter& table_;
  Communicator* tensor_ranks_;
  float scale_;
  Gradient gradient_;
  mutable Tensor apart_;  // of this step so far
};

}  // namespace weft
