#pragma once

#include "kernels/scan/elementwise_scan.h"

// The CPU's side of kernels/scan/elementwise_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void selective_scan_forward(Exec& exec, const SelectiveScan& in, ConstView initial_state, View out,
                            View final_state);
void selective_scan_backward(Exec& exec, const SelectiveScan& in, ConstView initial_state,
                             ConstView d_out, ConstView d_final_state,
                             const SelectiveScanGradients& gradients);
void static_scan_forward(Exec& exec, const StaticScan& in, ConstView initial_state, View out,
                         View final_state);
void static_scan_backward(Exec& exec, const StaticScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const StaticScanGradients& gradients);

}  // namespace weft::kernels::cpu
