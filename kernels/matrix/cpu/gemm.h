#pragma once

#include "kernels/matrix/gemm.h"

// The CPU's side of kernels/matrix/gemm.h: arguments are checked.
namespace weft::kernels::cpu {

void gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options);
void batched_gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options);
// Makes the panels, which have the layout of exec's instruction set.
void pack_matrices(Exec& exec, ConstView b, Transpose transpose, Tensor& panels);
void grouped_gemm(Exec& exec, ConstView a, std::span<const int64_t> offsets,
                  const PackedMatrices& b, View c, Write write, ConstView gather);
void grouped_gemm_weights(Exec& exec, ConstView a, ConstView b, std::span<const int64_t> offsets,
                          View c, const GroupedWeightOptions& options);

}  // namespace weft::kernels::cpu
