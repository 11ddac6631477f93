#pragma once

#include <span>
#include <vector>

#include "kernels/attention/attention.h"

// What forgetting (FoX) adds to blockwise attention: the running sums of the gates and, with
// pruning (ACP), the blocks that need no computing.
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

class Forgetting {
 public:
  // Nothing is computed without log_forget.
  Forgetting(Exec& exec, const Attention& in, const BlockShape& block);

  // Of a document (by number) and head, counted from its first key and its first block of queries;
  // nullptr: no bias, no pruning.
  const double* sums(int64_t document, int64_t head) const;
  const int32_t* first_blocks(int64_t document, int64_t head) const;

  void count_blocks(std::span<BlockCount> report) const;  // one entry per head

 private:
  double* sums_of(int64_t document, int64_t head) const;
  int32_t* first_blocks_of(int64_t document, int64_t head) const;
  void sum(int64_t document, int64_t head) const;

  const Attention& in_;
  BlockShape block_;
  Tensor sums_;                   // [heads, keys], double in the place of i64
  Tensor first_blocks_;           // [heads, blocks of queries of all documents] i32
  std::vector<int64_t> offsets_;  // of a document's blocks of queries among those of all
};

// d_log_forget_t = sum over u >= t in the document of d_sums_u, itself a sum over `parts`.
// d_sums: f32 [heads * parts, keys], not read where no query sees. The first gate of a document has
// no effect.
void forgetting_backward(Exec& exec, const Attention& in, ConstView d_sums, int64_t parts,
                         View d_log_forget);

}  // namespace weft::kernels
