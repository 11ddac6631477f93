#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/states/turn.h"

namespace weft::kernels {

struct TurnedState {
  const float* factors;  // [heads, 2, dk]
  const float* from;     // [heads, 2, dk, dv]
  float* to;
  int64_t dk, dv;
  Turn turn;
};

struct TurnGradient {
  const float *state, *d_state;  // [heads, 2, dk, dv]
  float* d_angle;                // [heads, dk]
  int64_t dk, dv;
};

// One head; conjugate: `half` real numbers and as many imaginary ones.
struct TurnTable {
  void (*turn)(const TurnedState&, int64_t head);
  void (*conjugate)(const float* from, float* to, int64_t half);
  void (*gradient)(const TurnGradient&, int64_t head);
};
const TurnTable& table(IsaTag<Isa::kPlain>, const TurnTable*);
const TurnTable& table(IsaTag<Isa::kAvx2>, const TurnTable*);
const TurnTable& table(IsaTag<Isa::kAvx512>, const TurnTable*);

}  // namespace weft::kernels
