#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/rows/gate_activation.h"

namespace weft::kernels {

struct OutputGate {
  GateActivation act;
  ConstRows x, gate, dy;  // dy and d_gate in backward only
  Rows y;                 // dx in backward
  Rows d_gate;
};

struct OutputGateTable {
  void (*forward)(const OutputGate&, const Box&);
  void (*backward)(const OutputGate&, const Box&);
};
const OutputGateTable& table(IsaTag<Isa::kPlain>, const OutputGateTable*);
const OutputGateTable& table(IsaTag<Isa::kAvx2>, const OutputGateTable*);
const OutputGateTable& table(IsaTag<Isa::kAvx512>, const OutputGateTable*);

}  // namespace weft::kernels
