#pragma once

#include "kernels/routing/router.h"

// The CPU's side of kernels/routing/router.h: arguments are checked.
namespace weft::kernels::cpu {

void route_forward(Exec& exec, const Router& router, const RouterInput& in, const Routed& out);
// gradient.run is set, and gradient.fraction is given exactly where aux_scale is not 0.
void route_backward(Exec& exec, const Router& router, ConstView logits, const Routed& routed,
                    const RouterGradient& gradient, View d_logits);

}  // namespace weft::kernels::cpu
