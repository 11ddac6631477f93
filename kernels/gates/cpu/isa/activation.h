#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/gates/activation.h"

namespace weft::kernels {

struct Pointwise {
  Activation f;
  ConstRows x, dy;  // dy in backward only
  Rows y;           // dx in backward
};

struct ActivationTable {
  void (*forward)(const Pointwise&, const Box&);
  void (*backward)(const Pointwise&, const Box&);
};
const ActivationTable& table(IsaTag<Isa::kPlain>, const ActivationTable*);
const ActivationTable& table(IsaTag<Isa::kAvx2>, const ActivationTable*);
const ActivationTable& table(IsaTag<Isa::kAvx512>, const ActivationTable*);

}  // namespace weft::kernels
