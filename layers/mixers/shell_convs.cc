#include "layers/mixers/shell_convs.h"

namespace weft {
namespace {

ShortConv::Options of_kv(const HeadOptions& h, int64_t width) {
  return {.channels = h.kv_heads * width, .unit = width, .replicas = h.kv_replicas};
}

}  // namespace

ShellConvs::ShellConvs(const Build& build, const HeadOptions& h)
    : begin_{0, h.heads * h.dk, (h.heads + h.kv_heads) * h.dk,
             (h.heads + h.kv_heads) * h.dk + h.kv_heads * h.dv},
      convs_{ShortConv(build, "q_conv1d", {.channels = h.heads * h.dk, .unit = h.dk}),
             ShortConv(build, "k_conv1d", of_kv(h, h.dk)),
             ShortConv(build, "v_conv1d", of_kv(h, h.dv))} {}

Tensor ShellConvs::forward(Exec& exec, const Tensor& projected, const MixerContext& context,
                           SavedStack& saved) const {
  const Tensor y = exec.empty({projected.shape()[0], width()}, projected.dtype());
  for (size_t i = 0; i < convs_.size(); ++i) {
    convs_[i].forward(exec, part(projected, i), part(y, i), context.sequence, context.state, saved);
  }
  return y;
}

void ShellConvs::backward(Exec& exec, const Tensor& projected, const Tensor& dy, const Tensor& dx,
                          const MixerContext& context, SavedStack& saved) const {
  for (size_t i = convs_.size(); i-- > 0;) {
    convs_[i].backward(exec, part(projected, i), part(dy, i), part(dx, i), context.sequence,
                       context.state, saved);
  }
}

}  // namespace weft
