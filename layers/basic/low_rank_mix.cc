#include "layers/basic/low_rank_mix.h"

#include "kernels/gates/activation.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/reductions.h"
#include "kernels/sequence/token_lerp.h"
#include "layers/basic/rwkv6_start.h"

namespace weft {
namespace {

constexpr std::string_view kTokenMix = "token_mix";

// Late layers' values look less at the token before; r and g of all layers have half the power.
double initial_mix(const Rwkv6Start& start, int64_t which, int64_t channel) {
  const bool half = which == LowRankMix::kR || which == LowRankMix::kG;
  return start.mix(channel, half ? 0.5 : 1.0, which == LowRankMix::kV ? 0.3 : 0.0);
}

enum class Kind : uint8_t { kMatrix, kVector };
Parameter& declare(const Build& build, const char* name, Shape shape, Init init, Kind kind) {
  return build.declare({.name = build.scope + name,
                        .global = shape,
                        .partial_over = {Axis::kTensor},
                        .init = std::move(init),
                        .weight_decay = kind == Kind::kMatrix,
                        .f32 = kind == Kind::kVector});
}

}  // namespace

// The narrow layer starts at zero: a normal of no deviation, since it is an ordinary weight.
LowRankMix::LowRankMix(const Build& build, int64_t rank)
    : compute_(build.compute),
      hidden_(build.hidden),
      rank_(rank),
      previous_(build.hidden),
      mu_(declare(build, "x_proj.0.mu", {build.hidden},
                  Init::each([start = Rwkv6Start(build)](int64_t i) { return start.mix(i, 1.0); }),
                  Kind::kVector)),
      down_(build, {{"x_proj.0", kCount * rank}}, build.hidden,
            {.init = Init::normal(0.0), .partial_over = {Axis::kTensor}}),
      up_(declare(build, "x_proj.2.weight", {build.hidden, kCount * rank},
                  Init::uniform(-0.01, 0.01), Kind::kMatrix)),
      bias_(declare(build, "x_bias", {kCount, build.hidden},
                    Init::each([start = Rwkv6Start(build)](int64_t i) {
                      return initial_mix(start, i / start.hidden, i % start.hidden);
                    }),
                    Kind::kVector)) {}

LowRankMix::Pass LowRankMix::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                                     SavedStack& saved) const {
  const Shape shape{context.sequence.tokens(), hidden_};
  Saved f;
  f.x = x;
  f.before = exec.empty(shape, compute_);
  previous_.forward(exec, {x, f.before}, context.sequence, context.part(kTokenMix), saved);
  const Tensor mixed = exec.empty(shape, compute_);
  kernels::token_lerp_forward(exec, {x, f.before, mu_.value}, mixed);
  f.low_in = down_.forward(exec, mixed, compute_, saved);
  f.low = exec.empty(f.low_in.shape(), compute_);
  kernels::activation_forward(exec, kernels::Activation::kTanh, f.low_in, f.low);
  for (Tensor& mix : f.mix) mix = exec.empty(shape, compute_);
  saved.push(f);
  return Pass(*this, f);
}

Tensor LowRankMix::Pass::input(Exec& exec, Which n) const {
  const int64_t rank = mix_.rank_;
  const Tensor& weights = frame_.mix[n];
  kernels::gemm(exec, frame_.low.view().columns(n * rank, rank),
                mix_.up_.value.view().columns(n * rank, rank), weights,
                {.b = kernels::Transpose::kYes});
  kernels::add_bias(exec, mix_.bias_.value.row(n), weights);
  const Tensor out = exec.empty(frame_.x.shape(), mix_.compute_);
  kernels::token_lerp_forward(exec, {frame_.x, frame_.before, weights}, out);
  return out;
}

Tensor LowRankMix::backward(Exec& exec, const Inputs& d, const MixerContext& context,
                            SavedStack& saved) const {
  const Saved f = saved.pop<Saved>();
  const Shape shape{context.sequence.tokens(), hidden_};
  const Tensor dx = exec.zeros(shape), d_before = exec.zeros(shape);
  const Tensor d_mix = exec.empty(shape, compute_);
  const Tensor d_low = exec.empty(f.low.shape(), compute_);
  for (int n = 0; n < kCount; ++n) {
    kernels::token_lerp_backward(exec, {f.x, f.before, f.mix[n]}, d[n], {dx, d_before, d_mix});
    kernels::column_sum(exec, d_mix, bias_.grad.row(n));
    kernels::gemm(exec, d_mix, up_.value.view().columns(n * rank_, rank_),
                  d_low.view().columns(n * rank_, rank_));
    kernels::gemm(exec, d_mix, f.low.view().columns(n * rank_, rank_),
                  up_.grad.view().columns(n * rank_, rank_),
                  {.a = kernels::Transpose::kYes, .write = kernels::Write::kAccumulate});
  }
  kernels::activation_backward(exec, kernels::Activation::kTanh, f.low_in, d_low, d_low);
  const Tensor d_mixed = down_.backward(exec, d_low, compute_, saved);
  kernels::token_lerp_backward(exec, {f.x, f.before, mu_.value}, d_mixed, {dx, d_before, mu_.grad});
  previous_.backward(exec, {f.x, f.before}, context.sequence, d_before, context.part(kTokenMix),
                     {dx}, saved);
  return dx;
}

double LowRankMix::flops_per_token() const {
  return 4.0 * static_cast<double>(hidden_) * static_cast<double>(kCount * rank_);
}

}  // namespace weft
