#pragma once

#include "core/memory/exec.h"

// A token's sum of the rows it was sent to, weighed by the router. Rows and y are f32 or bf16, each
// on its own, and may be strided; weights are f32. row i32 [n, k] as in ExpertOrder; every pair has
// a row.
namespace weft::kernels {

// y [n, d] = sum over k of weight [n, k] * rows [n * k, d] at row [n, k], in the order of k
void mix_rows_forward(Exec& exec, ConstView row, ConstView rows, ConstView weight, View y);
// d_rows at row [n, k] = weight [n, k] * dy [n];  d_weight [n, k] = <rows at row [n, k], dy [n]>
struct MixRowsBackward {
  ConstView rows, weight, dy;
  View d_rows, d_weight;
};
void mix_rows_backward(Exec& exec, ConstView row, const MixRowsBackward& in);

}  // namespace weft::kernels
