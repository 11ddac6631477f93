#pragma once

#include "kernels/gates/ssm.h"

// The CPU's side of kernels/gates/ssm.h: arguments are checked.
namespace weft::kernels::cpu {

void time_step_forward(Exec& exec, ConstView z, ConstView bias, View dt);
void time_step_backward(Exec& exec, ConstView z, ConstView bias, ConstView d_dt, View dz,
                        View d_bias);
void head_steps_forward(Exec& exec, const HeadSteps& in, View v, View g);
void add_head_skip(Exec& exec, const HeadSteps& in, View y);
void head_steps_backward(Exec& exec, const HeadSteps& in, const HeadStepsBackward& back);

}  // namespace weft::kernels::cpu
