#include "layers/memory/memory_linear.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/gather.h"
#include "kernels/rows/reductions.h"

namespace weft {

using kernels::Transpose;
using kernels::Write;

Tensor MemorySpace::spread(Exec& exec, const MemoryRows& rows, const Tensor& computed) const {
  if (!single) return computed;
  const Tensor out = exec.empty({rows.count(), computed.shape().back()}, computed.dtype());
  kernels::gather_rows(exec, computed, rows.tokens(), out);
  return out;
}

Tensor MemorySpace::collect(Exec& exec, const MemoryRows& rows, const Tensor& spread) const {
  if (!single) return spread;
  const Tensor out = exec.empty({count(rows), spread.shape().back()}, spread.dtype());
  kernels::combine_rows(exec, rows.order.row, spread, out);
  return out;
}

MemoryLinear::MemoryLinear(const Build& build, const MemorySpace& space, const Options& options)
    : space_(space), options_(options) {
  if (!space.single) routed_ = declare(build, options.name, space.routed);
  if (space.single || space.shared) shared_ = declare(build, options.shared_name, 0);
}

MemoryLinear::Weight MemoryLinear::declare(const Build& build, const std::string& name,
                                           int64_t memories) const {
  ParameterSpec weight{.name = build.scope + name + ".weight", .global = {}, .init = options_.init};
  ParameterSpec bias{.name = build.scope + name + ".bias",
                     .global = {},
                     .init = options_.bias_init,
                     .weight_decay = false,
                     .f32 = true};
  for (ParameterSpec* spec : {&weight, &bias}) {
    if (memories > 0) spec->global.append(memories);
    if (options_.unit > 0) {
      spec->splits = {
          Split{.dim = spec->global.dims(), .axis = Axis::kTensor, .unit = options_.unit}};
    } else {
      spec->partial_over = {Axis::kTensor};
    }
    spec->global.append(options_.out);
  }
  weight.global.append(options_.in);
  Weight w{.weight = &build.declare(weight)};
  w.prepared.emplace(*w.weight);
  if (options_.bias) w.bias = &build.declare(bias);
  return w;
}

ConstView MemoryLinear::for_shared(const Tensor& x, const MemoryRows& rows) const {
  if (space_.single || options_.reads == Reads::kTokens) return x;
  return x.view().row_range(routed_rows(rows), rows.count() - routed_rows(rows));
}

Tensor MemoryLinear::forward(Exec& exec, const Tensor& x, const MemoryRows& rows,
                             DType type) const {
  const Tensor y = exec.empty({space_.count(rows), options_.out}, type);
  const int64_t routed = routed_rows(rows), shared = y.shape()[0] - routed;
  if (routed_.weight != nullptr) {
    kernels::grouped_gemm(
        exec, x.view().row_range(0, gather(rows).data == nullptr ? routed : x.shape()[0]),
        offsets(rows), routed_.prepared->forward(exec), y.view().row_range(0, routed),
        Write::kReplace, gather(rows));
    for (int64_t m = 0; m < space_.routed && routed_.bias != nullptr; ++m) {
      const int64_t begin = offsets(rows)[static_cast<size_t>(m)];
      kernels::add_bias(
          exec, routed_.bias->value.row(m),
          y.view().row_range(begin, offsets(rows)[static_cast<size_t>(m) + 1] - begin));
    }
  }
  if (shared_.weight != nullptr) {
    const View to = y.view().row_range(routed, shared);
    kernels::gemm(exec, for_shared(x, rows), shared_.prepared->forward(exec), to);
    if (shared_.bias != nullptr) kernels::add_bias(exec, shared_.bias->value, to);
  }
  return y;
}

void MemoryLinear::backward(Exec& exec, const Tensor& dy, const Tensor& x, const MemoryRows& rows,
                            View dx, Write write) const {
  const int64_t routed = routed_rows(rows), shared = dy.shape()[0] - routed;
  if (routed_.weight != nullptr) {
    const ConstView d = dy.view().row_range(0, routed);
    kernels::grouped_gemm(exec, d, offsets(rows), routed_.prepared->backward(exec),
                          dx.row_range(0, routed), write);
    kernels::grouped_gemm_weights(
        exec, d, x.view().row_range(0, gather(rows).data == nullptr ? routed : x.shape()[0]),
        offsets(rows), routed_.weight->grad, {.gather_b = gather(rows)});
    for (int64_t m = 0; m < space_.routed && routed_.bias != nullptr; ++m) {
      const int64_t begin = offsets(rows)[static_cast<size_t>(m)];
      kernels::column_sum(exec,
                          d.row_range(begin, offsets(rows)[static_cast<size_t>(m) + 1] - begin),
                          routed_.bias->grad.row(m));
    }
  }
  if (shared_.weight != nullptr) {
    const ConstView d = dy.view().row_range(routed, shared);
    kernels::gemm(exec, d, shared_.prepared->backward(exec), dx.row_range(routed, shared), write);
    kernels::gemm(exec, d, for_shared(x, rows), shared_.weight->grad,
                  {.a = Transpose::kYes, .write = Write::kAccumulate});
    if (shared_.bias != nullptr) kernels::column_sum(exec, d, shared_.bias->grad);
  }
}

}  // namespace weft
