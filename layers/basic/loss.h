#pragma once

#include "core/memory/saved.h"
#include "layers/basic/prepared_weight.h"
#include "layers/context/build.h"

namespace weft {

// The output head and the cross-entropy, in blocks of rows: logits of a block, its losses and its
// gradients come and go before the next block, so that no [tokens, vocab] f32 tensor is ever kept
// and the head's product is computed once. Hence gradients are formed in forward, which must know
// their scale.
//
// Tensor ranks hold slices of the vocabulary: all see all rows, exchange the largest logit, the sum
// of exponentials and the target's logit of each, and keep the loss of their own tokens.
class LossHead {
 public:
  // `tied`: the embedding's table, or null for a head of its own.
  LossHead(const Build& build, int64_t vocab, Parameter* tied);

  struct Result {
    double loss_sum = 0;  // nats, over the targets that count
    Tensor dx;            // [tokens, hidden] f32; undefined when no gradients were asked for
  };
  enum class Gradients : uint8_t { kNo, kYes };
  // x [tokens, hidden] compute type, of this tensor rank's tokens, as are dx and loss_sum; targets
  // i32 of all tokens of the span, negative ones do not count. Gradients are those of loss_sum *
  // scale.
  Result forward(Exec& exec, const Tensor& x, const Tensor& targets, float scale,
                 Gradients gradients) const;

  // [tokens, vocab] f32 of x [tokens, hidden], which all tensor ranks have; so do they have the
  // logits.
  Tensor logits(Exec& exec, const Tensor& x) const;

  double flops_per_token() const;

 private:
  // Losses of a block of rows and, where wanted, the gradient of its logits.
  void losses_of(Exec& exec, ConstView logits, ConstView targets, float scale, View losses,
                 View d_logits) const;

  Parameter& weight_;  // [vocab, hidden]
  Communicator* tensor_ranks_;
  PreparedWeight prepared_;
};

}  // namespace weft
