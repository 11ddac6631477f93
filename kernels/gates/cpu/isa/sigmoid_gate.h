#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

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
const SigmoidGateTable& table(IsaTag<Isa::kPlain>, const SigmoidGateTable*);
const SigmoidGateTable& table(IsaTag<Isa::kAvx2>, const SigmoidGateTable*);
const SigmoidGateTable& table(IsaTag<Isa::kAvx512>, const SigmoidGateTable*);

}  // namespace weft::kernels
