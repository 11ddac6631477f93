#pragma once

#include <span>
#include <vector>

#include "kernels/matrix/gemm.h"

// Products with the block-sparse matrices that experts make (MegaBlocks, arXiv 2211.15841).
//
// Seen over all groups, hidden rows form a matrix [rows, groups * n] in which a row has entries
// only in the n columns of its group. With every group's rows padded to whole blocks, a block of
// rows belongs to one group: the blocks that are not zero lie side by side and are stored as
// [padded rows, n], in whole blocks. Every block of rows is one product of the same size whatever
// the balance of the groups.
//
// Rows of padding must be zero where they enter; then they are zero where they leave and add
// nothing to sums over rows. Dense results have no padding.
namespace weft::kernels {

struct BlockTopology {
  struct Block {
    int64_t group;
    int64_t first, rows;  // its rows in the dense, unpadded order; rows <= block
  };
  int64_t block = 1;          // rows
  std::vector<Block> blocks;  // by group
  std::vector<int64_t>
      offsets;  // [groups + 1]: padded rows of group g are offsets[g] .. offsets[g + 1]

  int64_t padded_rows() const { return offsets.back(); }
};
// offsets [groups + 1]: of the unpadded rows. Groups without rows have no blocks.
BlockTopology block_topology(std::span<const int64_t> offsets, int64_t block);

// values [rows] in padded order with padding between: 0 for f32, -1 for i32; and back without it.
void pad_values(Exec& exec, const BlockTopology& topology, ConstView values, View padded);
void unpad_values(Exec& exec, const BlockTopology& topology, ConstView padded, View values);

// Sparse = dense * dense:  c [padded rows, n] = a [padded rows, k] b_group
void sparse_from_dense(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c);
// Dense = sparse * dense:  c [rows, n] = the rows of a [padded rows, k] that are no padding, times
// b_group
void dense_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a,
                       const PackedMatrices& b, View c);
// Dense = sparse^T * dense:  c_g [m, n] += over rows of group g, a [padded rows, m]^T b [padded
// rows, n]
void add_from_sparse(Exec& exec, const BlockTopology& topology, ConstView a, ConstView b, View c);

}  // namespace weft::kernels
