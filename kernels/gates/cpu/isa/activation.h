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

struct Swiglu {
  ConstRows gate_up, dh;  // dh, d_gate_up and d_scale in backward only
  const float* scale;     // absent: 1
  Rows h;                 // absent in backward where it is not wanted
  Rows d_gate_up;
  float* d_scale;  // may be absent
  int64_t width;   // of h
};

struct ActivationTable {
  void (*forward)(const Pointwise&, const Box&);
  void (*backward)(const Pointwise&, const Box&);
  void (*swiglu_forward)(const Swiglu&, int64_t begin, int64_t end);
  void (*swiglu_backward)(const Swiglu&, int64_t begin, int64_t end);
};
const ActivationTable& table(IsaTag<Isa::kPlain>, const ActivationTable*);
const ActivationTable& table(IsaTag<Isa::kAvx2>, const ActivationTable*);
const ActivationTable& table(IsaTag<Isa::kAvx512>, const ActivationTable*);

}  // namespace weft::kernels
