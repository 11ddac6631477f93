#pragma once

#include "kernels/scan/delta_scan.h"

// The CPU's side of kernels/scan/delta_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void delta_scan_kept(Exec& exec, const DeltaScan& in, int64_t& floats);
void delta_scan_forward(Exec& exec, const DeltaScan& in, ConstView initial_state, View out,
                        View final_state, View kept);
void delta_scan_backward(Exec& exec, const DeltaScan& in, ConstView initial_state, ConstView d_out,
                         ConstView d_final_state, const DeltaScanGradients& gradients,
                         ConstView kept);

}  // namespace weft::kernels::cpu
