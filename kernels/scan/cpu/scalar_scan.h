#pragma once

#include "kernels/scan/scalar_scan.h"

// The CPU's side of kernels/scan/scalar_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void scalar_scan_kept(Exec& exec, const ScalarScan& in, int64_t& floats);
void scalar_scan_forward(Exec& exec, const ScalarScan& in, ConstView initial_state, View out,
                         View final_state, View kept);
void scalar_scan_backward(Exec& exec, const ScalarScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const ScalarScanGradients& gradients, ConstView kept);
void scalar_scan_summary(Exec& exec, const ScalarScan& in, View update, View total);
void scalar_scan_state_gradient(Exec& exec, const ScalarScan& in, ConstView d_out,
                                View d_initial_state);

}  // namespace weft::kernels::cpu
