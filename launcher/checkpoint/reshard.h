#pragma once

#include <string>

#include "parallel/checkpoint/checkpoint.h"

namespace weft {

struct Resharding {
  int files = 1;
  bool weights_only = false;  // without the optimizer's moments
};

// Writes a checkpoint anew, its tensors cut by rows over `files` files (one: every tensor whole),
// into the folder of checkpoints of a run. Takes memory for one tensor's part at a time. Returns
// the new checkpoint.
std::string reshard(const FoundCheckpoint& from, const Resharding& how,
                    const std::string& checkpoints);

}  // namespace weft
