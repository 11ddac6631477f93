#pragma once

#include <memory>

#include "layers/basic/rms_norm.h"
#include "layers/context/feed_forward.h"
#include "layers/context/mixer.h"
#include "layers/context/recompute_cache.h"

namespace weft {

// Tensors that a block keeps from forward to backward. Recomputing exchanges nothing with sequence
// ranks again: states and rows that came from them are kept (layers/context/recompute_cache.h).
// Tokens that tensor ranks gather, rows of experts, and keys and values of softmax attention are
// exchanged once more: keeping them would keep what recompute gives up, as much as the whole input
// of the mixer or the experts.
enum class Recompute : uint8_t {
  kNone,       // everything backward needs
  kSelective,  // the mixer's inside is computed again (its memory grows fastest with width and
               // heads)
  kFull,       // only the block's input, the routing decision and what sequence ranks told
};

// How a branch (mixer or feed-forward) joins the stream again:  x <- stream * past + branch *
// f(norm(x)), where past is x or, with `normed`, norm(x).
struct Residual {
  float stream = 1.0f, branch = 1.0f;
  bool normed = false;
};
struct Residuals {
  Residual mixer = {}, ffn = {};
};

// Pre-norm:  x <- x + mixer(norm1(x));  x <- x + feed_forward(norm2(x)).   x: [tokens, hidden] f32,
// this tensor rank's part of the sequence's tokens (layers/basic/token_shards.h)
class Block {
 public:
  // feed_forward and norm2 are null for ffn = "none".
  Block(std::unique_ptr<Mixer> mixer, RmsNorm norm1, std::unique_ptr<FeedForward> feed_forward,
        std::unique_ptr<RmsNorm> norm2, Recompute recompute, Communicator* tensor_ranks = nullptr,
        const Residuals& residuals = {});

  // `state`, where given, is the mixer's: enters as before the tokens, leaves as after them.
  Tensor forward(Exec& exec, const Tensor& x, const Sequence& sequence, StepContext& context,
                 SavedStack& saved, MixerState* state = nullptr) const;
  Tensor backward(Exec& exec, const Tensor& dy, const Sequence& sequence, StepContext& context,
                  SavedStack& saved) const;

  double flops_per_token(int64_t length) const;
  void finish_gradients(Exec& exec) const { mixer_->finish_gradients(exec); }
  void finish_step(Exec& exec, const MoeReport& step) { feed_forward_->finish_step(exec, step); }

 private:
  struct Kept {  // in place of what is computed again
    Tensor x;
    std::optional<Routing> routing;
    RecomputeCache told;
  };

  // Norm and mixer, whose result is a part of a sum over the tensor ranks.
  struct Mixed {
    Tensor normed, part;
  };
  Mixed run_mixer(Exec& exec, const Tensor& x, const MixerContext& context,
                  SavedStack& saved) const;
  // The stream behind the mixer.
  Tensor join_mixer(Exec& exec, const Tensor& x, const Mixed& mixed) const;
  // The second of two forward passes, which reports nothing and asks no sequence rank.
  Mixed mix_again(Exec& exec, Kept& kept, const Sequence& sequence, StepContext& context,
                  SavedStack& saved) const;
  Tensor mixer_backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                        SavedStack& saved) const;
  Tensor mix_backward(Exec& exec, const Tensor& d_middle, const MixerContext& context,
                      SavedStack& saved) const;
  Tensor feed(Exec& exec, const Tensor& middle, StepContext& context, SavedStack& saved) const;
  Tensor feed_backward(Exec& exec, const Tensor& dy, StepContext& context, SavedStack& saved) const;

  std::unique_ptr<Mixer> mixer_;
  RmsNorm norm1_;
  std::unique_ptr<FeedForward> feed_forward_;
  std::unique_ptr<RmsNorm> norm2_;
  Recompute recompute_;
  Communicator* tensor_ranks_;
  Residuals residuals_;
};

}  // namespace weft
