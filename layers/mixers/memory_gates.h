#pragma once

#include <optional>
#include <vector>

#include "layers/memory/memory_linear.h"
#include "layers/mixers/linear_gates.h"

namespace weft {

// The gates of every memory, from projections of x of their own: one row per (token, memory). The
// memories share what the maps of gates have beside the projections (A_log, dt_bias).
class MemoryGates {
 public:
  MemoryGates(const Build& build, const MemorySpace& space, int64_t heads,
              const std::vector<GateSpec>& specs);

  struct Saved {
    Tensor low;    // [computed rows, rank], before the activation
    Tensor raw;    // [computed rows, heads * width] f32
    Tensor value;  // [rows, heads * width] f32
  };
  std::vector<Saved> forward(Exec& exec, const Tensor& x, const MemoryRows& rows) const;
  // Adds into the weights' gradients and to dx f32 [computed rows, hidden].
  void backward(Exec& exec, const Tensor& x, const MemoryRows& rows,
                const std::vector<Saved>& saved, const std::vector<Tensor>& d_value, View dx) const;

  double flops_per_row() const;  // of the projections

 private:
  struct Gate {
    GateSpec spec;
    MemoryLinear up;
    std::optional<MemoryLinear> down = {};
    GateMap map;
  };
  Tensor active(Exec& exec, const Gate& gate, const Tensor& low) const;

  MemorySpace space_;
  DType compute_;
  std::vector<Gate> gates_;
};

}  // namespace weft
