#pragma once

#include "kernels/scan/norm_descent_scan.h"

// The CPU's side of kernels/scan/norm_descent_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void norm_descent_scan_kept(Exec& exec, const NormDescentScan& in, int64_t& floats);
void norm_descent_scan_forward(Exec& exec, const NormDescentScan& in,
                               const NormDescentStates& entering, View out,
                               const NormDescentStatesOut& leaving, View kept);
void norm_descent_scan_backward(Exec& exec, const NormDescentScan& in,
                                const NormDescentStates& entering, ConstView d_out,
                                const NormDescentStates& d_leaving,
                                const NormDescentGradients& gradients, ConstView kept);

}  // namespace weft::kernels::cpu
