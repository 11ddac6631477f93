#pragma once

#include <vector>

#include "parallel/comm/communicator.h"

namespace weft {

// Elements [begin, end) of the reduction over `from`, in that order, written to every one of `to`
// at `shift` elements less. `to` may be one of `from`. Every communicator reduces with this, so
// that the same ranks give the same bits whatever carries the bytes. bf16 is carried in f32 and
// rounded once.
struct Reduction {
  ReduceOp op;
  std::vector<const void*> from;
  std::vector<void*> to;
  int64_t begin, end, shift;

  void run(DType dtype) const;
};

}  // namespace weft
