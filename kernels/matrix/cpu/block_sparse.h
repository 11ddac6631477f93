#pragma once

#include "kernels/matrix/block_sparse.h"

// The CPU's side of kernels/matrix/block_sparse.h: arguments are checked, and there are blocks
// where values are padded.
namespace weft::kernels::cpu {

void pad_values(Exec& exec, const BlockTopology& topology, ConstView values, View padded);
void unpad_values(Exec& exec, const BlockTopology& topology, ConstView padded, View values);
void sparse_from_dense(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c);
void dense_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c);

}  // namespace weft::kernels::cpu
