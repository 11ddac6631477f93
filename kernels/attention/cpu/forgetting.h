#pragma once

#include <span>
#include <vector>

#include "kernels/attention/attention_ranges.h"
#include "kernels/attention/forgetting.h"

// The CPU's side of kernels/attention/forgetting.h: running sums of the gates, and the blocks that
// need no computing.
namespace weft::kernels::cpu {

void score_bounds(Exec& exec, const Attention& in, View bounds);

class Forgetting {
 public:
  // Nothing is computed without log_forget.
  Forgetting(Exec& exec, const Attention& in, const BlockShape& block);

  // Both begin with the first key and the first block of queries of document number `document`.
  // Null without bias or without pruning.
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

}  // namespace weft::kernels::cpu
