#pragma once

#include "core/memory/exec.h"
#include "kernels/routing/router.h"

// What tokens get back of the rows they were sent to: a sum weighed by the router. Rows and y are
// f32 or bf16, each on its own, and may be strided; weights are f32. Every pair must have a row.
namespace weft::kernels {

// y [n, d] = sum over k of weight [n, k] * rows [n * k, d] at order.row[n, k], in the order of k
void mix_rows_forward(Exec& exec, const ExpertOrder& order, ConstView rows, ConstView weight,
                      View y);
// d_rows at order.row[n, k] = weight [n, k] * dy [n];  d_weight [n, k] = <rows at row[n, k], dy
// [n]>
struct MixRowsBackward {
  ConstView rows, weight, dy;
  View d_rows, d_weight;
};
void mix_rows_backward(Exec& exec, const ExpertOrder& order, const MixRowsBackward& in);

}  // namespace weft::kernels
