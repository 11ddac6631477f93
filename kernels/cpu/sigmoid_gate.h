#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

struct SigmoidGateArgs {
  ConstRows x, gate, dy;  // dy and d_gate in backward only
  Rows y;                 // dx in backward
  Rows d_gate;
};

struct SigmoidGateTable {
  void (*forward)(const SigmoidGateArgs&, const Box&);
  void (*backward)(const SigmoidGateArgs&, const Box&);
};
const SigmoidGateTable& sigmoid_gate_table(IsaTag<Isa::kPlain>);
const SigmoidGateTable& sigmoid_gate_table(IsaTag<Isa::kAvx2>);
const SigmoidGateTable& sigmoid_gate_table(IsaTag<Isa::kAvx512>);

}  // namespace weft::kernels
