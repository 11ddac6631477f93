#pragma once

#include "core/memory/exec.h"

// Steps around the scans of state space models. f32 or bf16 unless said otherwise, computed
// in f32; rows may be strided.
namespace weft::kernels {

// The step of a token:  dt [n, d] f32 = softplus(z + bias).   z [n, d]; bias f32 [d]
void time_step_forward(Exec& exec, ConstView z, ConstView bias, View dt);
// dz = d_dt * sigmoid(z + bias);  d_bias [d] += sum over rows
void time_step_backward(Exec& exec, ConstView z, ConstView bias, ConstView d_dt, View dz,
                        View d_bias);

// A scan with one step and one rate per head (Mamba2), in terms of linear attention:
//   v = dt x,   g = -dt e^{a_log},   y = scan(v, g) + skip x                   (all per head)
// x [tokens, heads * width]; dt f32 [tokens, heads]; a_log, skip f32 [heads].
struct HeadSteps {
  ConstView x, dt;
  ConstView a_log, skip;
};
// v as x, g f32 [tokens, heads]
void head_steps_forward(Exec& exec, const HeadSteps& in, View v, View g);
// y [tokens, heads * width] += skip x
void add_head_skip(Exec& exec, const HeadSteps& in, View y);
// From dv, dg (f32) and dy, the gradient behind the skip:  dx, d_dt (f32) = ...;  d_a_log, d_skip
// += ...
struct HeadStepsBackward {
  ConstView dv, dg, dy;
  View dx, d_dt;
  View d_a_log, d_skip;
};
void head_steps_backward(Exec& exec, const HeadSteps& in, const HeadStepsBackward& back);

}  // namespace weft::kernels
