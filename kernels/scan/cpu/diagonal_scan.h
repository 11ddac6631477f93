#pragma once

#include "kernels/scan/diagonal_scan.h"

// The CPU's side of kernels/scan/diagonal_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void diagonal_scan_kept(Exec& exec, const DiagonalScan& in, int64_t& floats);
void diagonal_scan_forward(Exec& exec, const DiagonalScan& in, ConstView initial_state, View out,
                           View final_state, View kept);
void diagonal_scan_backward(Exec& exec, const DiagonalScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const DiagonalScanGradients& gradients, ConstView kept);

}  // namespace weft::kernels::cpu
