#include "layers/block.h"

#include "kernels/rows/elementwise.h"
#include "layers/basic/cast.h"
#include "layers/basic/token_shards.h"

namespace weft {
namespace {

Tensor times(Exec& exec, const Tensor& x, float factor) {
  if (factor == 1.0f) return x;
  const Tensor y = exec.empty(x.shape());
  kernels::scale(exec, x, factor, y);
  return y;
}

Sequence with_memory(const Sequence& sequence, RecomputeCache& memory) {
  Sequence own = sequence;
  own.memory = &memory;
  return own;
}

// The stream after a branch; takes the branch's place.
void join(Exec& exec, const Residual& r, const Tensor& x, const Tensor& normed,
          const Tensor& branch) {
  if (r.branch != 1.0f) kernels::scale(exec, branch, r.branch, branch);
  kernels::add(exec, times(exec, r.normed ? normed : x, r.stream), branch, branch);
}

// The gradient of x, from those of the stream after the branch and of the branch's input.
Tensor join_backward(Exec& exec, const Residual& r, const RmsNorm& norm, const Tensor& dy,
                     const Tensor& d_normed, SavedStack& saved) {
  const Tensor past = times(exec, dy, r.stream);
  if (!r.normed) return norm.backward(exec, d_normed, past, saved);
  kernels::add(exec, d_normed, past, d_normed);
  return norm.backward(exec, d_normed, {}, saved);
}

}  // namespace

Block::Block(std::unique_ptr<Mixer> mixer, RmsNorm norm1, std::unique_ptr<FeedForward> feed_forward,
             std::unique_ptr<RmsNorm> norm2, Recompute recompute, Communicator* tensor_ranks,
             const Residuals& residuals)
    : mixer_(std::move(mixer)),
      norm1_(std::move(norm1)),
      feed_forward_(std::move(feed_forward)),
      norm2_(std::move(norm2)),
      recompute_(recompute),
      tensor_ranks_(tensor_ranks),
      residuals_(residuals) {}

Block::Mixed Block::run_mixer(Exec& exec, const Tensor& x, const MixerContext& context,
                              SavedStack& saved) const {
  const Tensor normed = norm1_.forward(exec, x, saved);
  const Tensor all = gather_tokens(exec, tensor_ranks_, normed, context.sequence.tokens());
  return {normed, mixer_->forward(exec, all, context, saved)};
}

Tensor Block::join_mixer(Exec& exec, const Tensor& x, const Mixed& mixed) const {
  const Tensor sum = scatter_tokens(exec, tensor_ranks_, mixed.part);
  join(exec, residuals_.mixer, x, mixed.normed, sum);
  return sum;
}

Block::Mixed Block::mix_again(Exec& exec, Kept& kept, const Sequence& sequence,
                              StepContext& context, SavedStack& saved) const {
  kept.told.replay();
  const Sequence remembered = with_memory(sequence, kept.told);
  context.repeating = true;
  const Mixed mixed = run_mixer(exec, kept.x, {remembered, nullptr, &context}, saved);
  context.repeating = false;
  return mixed;
}

// Gradients of weights wait until the mixer's states are on their way to the other sequence ranks
// (with tensor ranks they wait anyway, see scatter_gradient).
Tensor Block::mixer_backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                             SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  const bool waiting = tensor_ranks_ != nullptr && tensor_ranks_->size() > 1;
  if (waiting || !sequence.is_split() || !sequence.travel.overlap) {
    return mixer_->backward(exec, dy, context, saved);
  }
  saved.hold();
  const Tensor dx = mixer_->backward(exec, dy, context, saved);
  saved.run_held(exec);
  return dx;
}

Tensor Block::mix_backward(Exec& exec, const Tensor& d_middle, const MixerContext& context,
                           SavedStack& saved) const {
  const Tensor d_mixed = times(exec, d_middle, residuals_.mixer.branch);
  // Rounded before they travel: a mixer's last product takes them so.
  const Tensor all = gather_tokens(
      exec, tensor_ranks_, in_type(exec, d_mixed, norm1_.result_type()), context.sequence.tokens());
  const Tensor d_normed = scatter_gradient(exec, tensor_ranks_, context.step->overlap, saved, [&] {
    return mixer_backward(exec, all, context, saved);
  });
  return join_backward(exec, residuals_.mixer, norm1_, d_middle, d_normed, saved);
}

Tensor Block::feed(Exec& exec, const Tensor& middle, StepContext& context,
                   SavedStack& saved) const {
  if (!feed_forward_) return middle;
  const Tensor normed = norm2_->forward(exec, middle, saved);
  const Tensor fed = feed_forward_->forward(exec, normed, context, saved);
  join(exec, residuals_.ffn, middle, normed, fed);
  return fed;
}

Tensor Block::feed_backward(Exec& exec, const Tensor& dy, StepContext& context,
                            SavedStack& saved) const {
  if (!feed_forward_) return dy;
  const Tensor d_fed = times(exec, dy, residuals_.ffn.branch);
  const Tensor d_normed = feed_forward_->backward(exec, d_fed, context, saved);
  return join_backward(exec, residuals_.ffn, *norm2_, dy, d_normed, saved);
}

Tensor Block::forward(Exec& exec, const Tensor& x, const Sequence& sequence, StepContext& context,
                      SavedStack& saved, MixerState* state) const {
  context.span_tokens = sequence.tokens();
  if (recompute_ == Recompute::kNone) {
    const Mixed mixed = run_mixer(exec, x, {sequence, state, &context}, saved);
    return feed(exec, join_mixer(exec, x, mixed), context, saved);
  }
  WEFT_CHECK(state == nullptr, "a block that computes its forward twice carries no state");
  SavedStack dropped;
  Kept kept{.x = x, .routing = {}, .told = {}};
  const Sequence remembered = with_memory(sequence, kept.told);
  const Tensor middle =
      join_mixer(exec, x, run_mixer(exec, x, {remembered, nullptr, &context}, dropped));
  dropped.clear();
  if (recompute_ == Recompute::kSelective) {
    saved.push(std::move(kept));
    return feed(exec, middle, context, saved);
  }
  context.decided.reset();
  const Tensor y = feed(exec, middle, context, dropped);
  kept.routing = context.decided;
  saved.push(std::move(kept));
  return y;
}

Tensor Block::backward(Exec& exec, const Tensor& dy, const Sequence& sequence, StepContext& context,
                       SavedStack& saved) const {
  context.span_tokens = sequence.tokens();
  if (recompute_ == Recompute::kNone) {
    const Tensor d_middle = feed_backward(exec, dy, context, saved);
    return mix_backward(exec, d_middle, {sequence, nullptr, &context}, saved);
  }
  SavedStack again = saved.inner();
  if (recompute_ == Recompute::kSelective) {
    const Tensor d_middle = feed_backward(exec, dy, context, saved);
    Kept kept = saved.pop<Kept>();
    mix_again(exec, kept, sequence, context, again);  // nobody reads what it gives
    return mix_backward(exec, d_middle, {sequence, nullptr, &context}, again);
  }
  Kept kept = saved.pop<Kept>();
  SavedStack fed = saved.inner();
  const Tensor middle = join_mixer(exec, kept.x, mix_again(exec, kept, sequence, context, again));
  context.replay = kept.routing;
  feed(exec, middle, context, fed);
  const Tensor d_middle = feed_backward(exec, dy, context, fed);
  return mix_backward(exec, d_middle, {sequence, nullptr, &context}, again);
}

double Block::flops_per_token(int64_t length) const {
  return mixer_->flops_per_token(length) + (feed_forward_ ? feed_forward_->flops_per_token() : 0.0);
}

}  // namespace weft
