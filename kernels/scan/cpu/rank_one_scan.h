#pragma once

#include "kernels/scan/rank_one_scan.h"

// The CPU's side of kernels/scan/rank_one_scan.h: arguments are checked.
namespace weft::kernels::cpu {

void rank_one_scan_kept(Exec& exec, const RankOneScan& in, int64_t& floats);
void rank_one_scan_forward(Exec& exec, const RankOneScan& in, ConstView initial_state, View out,
                           View final_state, View kept);
void rank_one_scan_backward(Exec& exec, const RankOneScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const RankOneScanGradients& gradients, ConstView kept);

}  // namespace weft::kernels::cpu
