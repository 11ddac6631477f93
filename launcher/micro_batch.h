#pragma once

#include "core/sampler.h"
#include "layers/sequence.h"

namespace weft {

// Some rows of a batch as this rank sees them: all their tokens, or its span of each row where
// sequence ranks share them.
struct MicroBatch {
  Tensor tokens, targets;  // i32 [tokens here]
  Sequence sequence;
  struct Run {  // tokens here that follow each other in the batch
    int64_t begin = 0, count = 0;
  };
  std::vector<Run>
      runs;  // in the order of the tokens here; begin counts from the batch's first token
};

// Rows [first, first + count) of a batch whose rows have `length` tokens.
struct BatchRows {
  int64_t first = 0, count = 0, length = 0;
};
MicroBatch micro_batch_of(Exec& exec, const Batch& batch, const BatchRows& rows,
                          Communicator& sequence_ranks);

}  // namespace weft
