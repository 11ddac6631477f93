#pragma once

#include <span>

#include "kernels/attention/attention.h"

// Forgetting attention (FoX) adds running sums of the gates to blockwise attention and, with
// pruning (ACP), leaves out blocks.
//
// c falls along the document, so that the entries (i, j) far below the diagonal have the lowest
// bias c_i - c_j. With U >= |scale q_i . k_j|, the entries of a query whose bias is below
//   delta = -2 U - log(keys) + log_epsilon
// weigh at most keys e^{U + delta} / e^{-U} = epsilon together, since the query itself has a score
// of at least -U. The largest bias of a block sits at its first query and last key.
namespace weft::kernels {

struct BlockShape {
  int64_t queries, keys;
};

double pruning_threshold(double bound, int64_t keys, double log_epsilon);

// first[I] = the first block of keys with a bias of at least `threshold` in block I of queries, for
// one document with running sums c of its keys, the first query being at `start`. Two pointers:
// linear in the number of blocks.
void find_first_blocks(std::span<const double> c, double threshold, const BlockShape& block,
                       std::span<int32_t> first, int64_t start = 0);

// bounds [documents, heads] f32 = scale * largest |q| * largest |k| of the document and head.
void score_bounds(Exec& exec, const Attention& in, View bounds);

}  // namespace weft::kernels
