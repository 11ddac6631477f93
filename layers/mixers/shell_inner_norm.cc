#include "layers/mixers/shell_inner_norm.h"

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

// Per head, f32; kept from decaying, since a model without weights has nothing to normalize.
Parameter& declare(const Build& build, const char* name, Shape shape, const Init& init) {
  return build.declare({.name = build.scope + name,
                        .global = shape,
                        .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                        .init = init,
                        .weight_decay = false,
                        .f32 = true});
}

}  // namespace

InnerNorm::InnerNorm(const Build& build, const Options& o)
    : options_(o),
      weight_(declare(build, "ln.weight", {o.heads, o.width}, Init::constant(1.0))),
      bias_(declare(build, "ln.bias", {o.heads, o.width}, Init::zeros())),
      start_m_(declare(build, "M0", {o.heads, o.width, o.width}, Init::normal(kInitDeviation))),
      start_n_(declare(build, "n0", {o.heads, o.width}, Init::zeros())),
      recurrence_({.heads = o.heads,
                   .width = o.width,
                   .mini_batch = o.mini_batch,
                   .start_m = &start_m_.value,
                   .start_n = &start_n_.value}) {}

Tensor InnerNorm::forward(Exec& exec, const Inputs& in, const MixerContext& context,
                          const std::function<void()>& meanwhile, SavedStack& saved) const {
  Saved f;
  f.read = recurrence_.forward(exec, inputs(in), context.sequence, context.part(kRecurrence), saved,
                               meanwhile);
  const Shape per_head{context.sequence.tokens(), options_.heads};
  f.statistics = {exec.empty(per_head), exec.empty(per_head)};
  const Tensor out = exec.empty(f.read.shape());
  kernels::group_norm_forward(exec, norm(), f.read, weight_.value, bias_.value, out, f.statistics);
  kernels::add(exec, out, in.q, out);
  saved.push(std::move(f));
  return out;
}

void InnerNorm::backward(Exec& exec, const Inputs& in, const Tensor& d_out,
                         const MixerContext& context, const Gradients& gradients,
                         SavedStack& saved) const {
  const Saved f = saved.pop<Saved>();
  const Tensor d_read = exec.empty(f.read.shape());
  kernels::group_norm_backward(exec, norm(), d_out, f.read, weight_.value, f.statistics,
                               {d_read, weight_.grad, bias_.grad});
  recurrence_.backward(exec, inputs(in), context.sequence, d_read, context.part(kRecurrence),
                       {.q = gradients.q,
                        .k = gradients.k,
                        .v = gradients.v,
                        .eta = gradients.eta,
                        .w = weight_.grad,
                        .c = bias_.grad,
                        .start_m = start_m_.grad,
                        .start_n = start_n_.grad},
                       saved);
  kernels::add(exec, gradients.q, d_out, gradients.q);
}

}  // namespace weft
