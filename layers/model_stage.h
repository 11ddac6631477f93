#pragma once

#include <optional>
#include <vector>

#include "core/config/run_config.h"
#include "layers/basic/embedding.h"
#include "layers/basic/loss.h"
#include "layers/block.h"
#include "parallel/watchdog/activity.h"

namespace weft {

// What passes from one pipeline stage to the next, or its gradient on the way back. Both ends know
// the shapes, so that nothing but the numbers travels.
struct Crossing {
  Tensor x;            // [tokens, hidden] f32, the residual stream, of this tensor rank's tokens
  Tensor first_value;  // of the first RWKV-7 layer, where one lies before and one behind; its
                       // gradient is f32
};

// The tokens of a micro-batch, the same on all tensor ranks. targets: i32 [tokens], negative ones
// do not count. Gradients are those of the sum of losses times `scale`.
struct StageWork {
  const Tensor& tokens;
  const Tensor& targets;
  const Sequence& sequence;
  float scale = 1.0f;
};

// One micro-batch on its way through a stage: what forward leaves for backward.
struct Passage {
  SavedStack saved;
  StepContext context;
  double loss_sum = 0;  // of the last stage
  Tensor d_last;        // there: the gradient that backward starts from, which the loss has formed
  Activity* activity = nullptr;  // told which layer runs, for messages; null: nobody asks
};

// The blocks [begin, end) of the model, with the embedding before the first block of all and the
// final norm and output head after the last.
class ModelStage {
 public:
  struct Part {
    int64_t begin = 0, end = 0;
  };
  // Declares the weights of the part in `store`; allocate it before use. `tensor_ranks` are those
  // that the store's coordinates cut weights over; null: one.
  ModelStage(const ModelConfig& model, Recompute recompute, DType compute, ParameterStore& store,
             const Part& part, Communicator* tensor_ranks = nullptr);
  // The whole model.
  ModelStage(const ModelConfig& model, Recompute recompute, DType compute, ParameterStore& store,
             Communicator* tensor_ranks = nullptr);

  bool first() const { return embedding_.has_value(); }
  bool last() const { return head_.has_value(); }
  const Part& part() const { return part_; }

  // `entering` comes from the stage before; the first starts from the tokens. Returns what goes to
  // the next; the last computes the loss, and its gradient where that is wanted.
  Crossing forward(Exec& exec, const StageWork& work, const Crossing& entering,
                   LossHead::Gradients gradients, Passage& passage) const;
  // The same in pieces, for those who act between blocks: what enters the first block, then every
  // block of part(), then what goes to the next stage.
  Tensor begin_forward(Exec& exec, const StageWork& work, const Crossing& entering,
                       Passage& passage) const;
  Tensor forward_block(Exec& exec, const StageWork& work, int64_t layer, const Tensor& x,
                       Passage& passage) const;
  Crossing end_forward(Exec& exec, const StageWork& work, const Tensor& x,
                       LossHead::Gradients gradients, Passage& passage) const;
  // Adds into the weights' gradients, together with those of the balance losses. Gradients come
  // from the stage behind and go to the one before.
  Crossing backward(Exec& exec, const StageWork& work, const Crossing& d_leaving,
                    Passage& passage) const;
  // The same in pieces: the gradient behind the last block, then
  // every block of part() from the last to the first, then what goes to the stage before.
  Tensor begin_backward(Exec& exec, const Crossing& d_leaving, Passage& passage) const;
  Tensor backward_block(Exec& exec, const StageWork& work, int64_t layer, const Tensor& dy,
                        Passage& passage) const;
  Crossing end_backward(Exec& exec, const Tensor& dx, Passage& passage) const;
  // Room for what forward and backward receive, for so many tokens.
  Crossing entering(Exec& exec, int64_t tokens) const;
  Crossing d_leaving(Exec& exec, int64_t tokens) const;

  // After the last backward of a step: what was added up apart for embeddings tied to a head of
  // this rank; then, when what several stages share has been summed over them, what layers share.
  void finish_embedding(Exec& exec) const;
  void finish_shared(Exec& exec) const;

  // The whole model alone: all gradients of one micro-batch; the sum of losses over this tensor
  // rank's part of the tokens.
  double train(Exec& exec, const StageWork& work, StepContext& context) const;
  double evaluate(Exec& exec, const Tensor& tokens, const Tensor& targets, const Sequence& sequence,
                  StepContext& context) const;
  double evaluate(Exec& exec, const Tensor& tokens, const Tensor& targets,
                  const Sequence& sequence) const {
    StepContext alone;
    return evaluate(exec, tokens, targets, sequence, alone);
  }

  // What decoding carries from call to call: one state per block.
  using States = std::vector<MixerState>;
  // Logits f32 [rows, vocab] of the tokens at `rows`, which count from the first token of this
  // call. States enter as before the tokens and leave as after them; an empty list starts. Tensor
  // ranks call it with the same tokens and all get the logits; `context` names the ranks that share
  // experts, where there are some.
  Tensor decode(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                const std::vector<int64_t>& rows, States& states, StepContext context = {}) const;

  // After an optimizer step, with the reports of all its tokens and layers: experts are balanced.
  void finish_step(Exec& exec, const std::vector<MoeReport>& step);

  // Forward FLOPs, for documents of `length` tokens; a training step takes three times that.
  double flops_per_token(int64_t length) const;

 private:
  int64_t rows_here(int64_t tokens) const;

  Part part_;
  int64_t hidden_;
  Coordinates::Place tensor_;
  Communicator* tensor_ranks_;
  int64_t value_width_;  // of a first value on this rank
  DType compute_;
  bool value_enters_, value_leaves_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<RmsNorm> norm_;
  std::optional<LossHead> head_;
};

}  // namespace weft
