#pragma once

#include "core/data/sampler.h"
#include "layers/context/sequence.h"

namespace weft {

// Some rows of a batch as this rank sees them: all their tokens, or its span of each row where
// sequence ranks share them. Tensor ranks see the same tokens and hold a part of them each between
// layers (layers/basic/token_shards.h).
struct MicroBatch {
  Tensor tokens, targets;  // i32 [tokens here]
  Sequence sequence;
  struct Run {  // tokens that follow each other in the batch; begin counts from its first
    int64_t begin = 0, count = 0;
  };
  std::vector<Run> runs;    // of this tensor rank's part, in its order; none of no tokens
  int64_t first_token = 0;  // where that part starts among the tokens here
};

// Rows [first, first + count) of a batch whose rows have `length` tokens.
struct BatchRows {
  int64_t first = 0, count = 0, length = 0;
};
struct TokenRanks {
  Communicator& sequence;
  Communicator& tensor;
  SpanTravel travel = {};  // between sequence ranks
};
MicroBatch micro_batch_of(Exec& exec, const Batch& batch, const BatchRows& rows,
                          const TokenRanks& ranks);

// Targets among the first `tokens` of a batch; padding has none.
int64_t count_targets(const Batch& batch, int64_t tokens);

}  // namespace weft
