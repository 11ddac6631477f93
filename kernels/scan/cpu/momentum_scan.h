#pragma once

#include "kernels/scan/momentum_scan.h"

// The CPU's side of kernels/scan/momentum_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void momentum_scan_kept(Exec& exec, const MomentumScan& in, int64_t& floats);
void momentum_scan_forward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                           View out, const MomentumStatesOut& leaving, View kept);
void momentum_scan_backward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                            ConstView d_out, const MomentumStates& d_leaving,
                            const MomentumScanGradients& gradients, ConstView kept);

}  // namespace weft::kernels::cpu
