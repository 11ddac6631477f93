#pragma once

#include <optional>
#include <vector>

#include "core/run_config.h"
#include "layers/block.h"
#include "layers/embedding.h"
#include "layers/loss.h"

namespace weft {

// The blocks [first, last) of the model, with the embedding before the first block of all and the final
// norm and output head after the last.
class ModelStage {
 public:
  // Declares every weight in `store`; allocate it before use. `tensor_ranks` are those that the
  // store's coordinates cut weights over; null: one.
  ModelStage(const ModelConfig& model, Recompute recompute, DType compute, ParameterStore& store,
             Communicator* tensor_ranks = nullptr);

  // tokens, targets: i32 [tokens], the same on all tensor ranks. Gradients of loss sum * scale are added
  // into the weights' gradients, together with those of the balance losses. The sum returned is over
  // this tensor rank's part of the tokens.
  double train(Exec& exec, const Tensor& tokens, const Tensor& targets, const Sequence& sequence,
               float scale, StepContext& context) const;
  // Sum of losses alone.
  double evaluate(Exec& exec, const Tensor& tokens, const Tensor& targets,
                  const Sequence& sequence, StepContext& context) const;
  double evaluate(Exec& exec, const Tensor& tokens, const Tensor& targets,
                  const Sequence& sequence) const {
    StepContext alone;
    return evaluate(exec, tokens, targets, sequence, alone);
  }

  // What decoding carries from call to call: one state per block.
  using States = std::vector<MixerState>;
  // Logits f32 [rows, vocab] of the tokens at `rows`, which count from the first token of this call. States
  // enter as before the tokens and leave as after them; an empty list starts.
  Tensor decode(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                const std::vector<int64_t>& rows, States& states) const;

  // After an optimizer step, with the reports of all its tokens: experts are balanced.
  void finish_step(const std::vector<MoeReport>& step);

  // Forward FLOPs, for documents of `length` tokens; a training step takes three times that.
  double flops_per_token(int64_t length) const;

 private:
  Tensor run_blocks(Exec& exec, const Tensor& tokens, const Sequence& sequence, StepContext& context,
                    SavedStack& saved) const;

  Embedding embedding_;
  std::vector<Block> blocks_;
  RmsNorm norm_;
  LossHead head_;
};

}  // namespace weft
