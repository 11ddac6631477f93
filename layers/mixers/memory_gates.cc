#include "layers/mixers/memory_gates.h"

#include "kernels/gates/activation.h"

namespace weft {
namespace {

using kernels::Activation;
using kernels::Write;

MemoryLinear::Options down_of(const Build& build, const GateSpec& spec) {
  return {.name = spec.stem + "_proj.0",
          .shared_name = "shared_" + spec.stem + ".0",
          .out = spec.rank,
          .in = build.hidden,
          .init = spec.down_init};
}

MemoryLinear::Options up_of(const Build& build, int64_t heads, const GateSpec& spec) {
  const bool pair = spec.rank > 0;
  return {.name = spec.stem + (pair ? "_proj.1" : "_proj"),
          .shared_name = "shared_" + spec.stem + (pair ? ".1" : ""),
          .out = heads * spec.width,
          .in = pair ? spec.rank : build.hidden,
          .unit = spec.width,
          .reads = pair ? MemoryLinear::Reads::kRows : MemoryLinear::Reads::kTokens,
          .bias = spec.bias != GateSpec::Bias::kNone,
          .init = spec.init,
          .bias_init = spec.bias_init};
}

// Biases are those of the projections.
GateMap map_of(const Build& build, int64_t heads, GateSpec spec) {
  spec.bias = GateSpec::Bias::kNone;
  GateMap map(spec);
  map.declare(build, {.count = heads});
  return map;
}

}  // namespace

MemoryGates::MemoryGates(const Build& build, const MemorySpace& space, int64_t heads,
                         const std::vector<GateSpec>& specs)
    : space_(space), compute_(build.compute) {
  for (const GateSpec& spec : specs) {
    MemoryLinear up(build, space, up_of(build, heads, spec));
    std::optional<MemoryLinear> down;
    if (spec.rank > 0) down.emplace(build, space, down_of(build, spec));
    gates_.push_back({spec, std::move(up), std::move(down), map_of(build, heads, spec)});
  }
}

Tensor MemoryGates::active(Exec& exec, const Gate& gate, const Tensor& low) const {
  if (gate.spec.between == Activation::kIdentity) return low;
  const Tensor out = exec.empty(low.shape(), compute_);
  kernels::activation_forward(exec, gate.spec.between, low, out);
  return out;
}

std::vector<MemoryGates::Saved> MemoryGates::forward(Exec& exec, const Tensor& x,
                                                     const MemoryRows& rows) const {
  std::vector<Saved> all;
  for (const Gate& gate : gates_) {
    Saved f;
    if (gate.down) f.low = gate.down->forward(exec, x, rows, compute_);
    f.raw = gate.up.forward(exec, gate.down ? active(exec, gate, f.low) : x, rows, DType::kF32);
    const Tensor value = exec.empty(f.raw.shape());
    gate.map.forward(exec, f.raw, value);
    f.value = space_.spread(exec, rows, value);
    all.push_back(std::move(f));
  }
  return all;
}

void MemoryGates::backward(Exec& exec, const Tensor& x, const MemoryRows& rows,
                           const std::vector<Saved>& saved, const std::vector<Tensor>& d_value,
                           View dx) const {
  for (size_t i = 0; i < gates_.size(); ++i) {
    const Gate& gate = gates_[i];
    const Saved& f = saved[i];
    const Tensor d_raw = exec.empty(f.raw.shape(), compute_);
    gate.map.backward(exec, f.raw, space_.collect(exec, rows, d_value[i]), d_raw);
    if (!gate.down) {
      gate.up.backward(exec, d_raw, x, rows, dx, Write::kAccumulate);
      continue;
    }
    const Tensor d_low = exec.empty(f.low.shape(), compute_);
    gate.up.backward(exec, d_raw, active(exec, gate, f.low), rows, d_low, Write::kReplace);
    if (gate.spec.between != Activation::kIdentity) {
      kernels::activation_backward(exec, gate.spec.between, f.low, d_low, d_low);
    }
    gate.down->backward(exec, d_low, x, rows, dx, Write::kAccumulate);
  }
}

double MemoryGates::flops_per_row() const {
  double flops = 0;
  for (const Gate& gate : gates_) {
    flops += gate.up.flops_per_row() + (gate.down ? gate.down->flops_per_row() : 0.0);
  }
  return flops;
}

}  // namespace weft
