#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/gates/decay_gate.h"

namespace weft::kernels {

struct DecayGateRows {
  DecayGate gate;
  ConstRows z, dg;  // dg in backward only
  Rows to;          // g, or dz in backward
};
struct TiedGatesRows {
  ConstRows f, dg, dk;  // dg, dk in backward only
  const float* lower;   // [width], or absent
  Rows g, k, df;        // g, k in forward, df in backward only
  int64_t width;
};

struct DecayGateTable {
  void (*forward)(const DecayGateRows&, const Box&);
  void (*backward)(const DecayGateRows&, const Box&);
  void (*tied_forward)(const TiedGatesRows&, int64_t begin, int64_t end);
  // d_lower [width] is overwritten by the sum over the rows; may be absent.
  void (*tied_backward)(const TiedGatesRows&, int64_t begin, int64_t end, float* d_lower);
};
const DecayGateTable& table(IsaTag<Isa::kPlain>, const DecayGateTable*);
const DecayGateTable& table(IsaTag<Isa::kAvx2>, const DecayGateTable*);
const DecayGateTable& table(IsaTag<Isa::kAvx512>, const DecayGateTable*);

}  // namespace weft::kernels
