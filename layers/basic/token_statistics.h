#pragma once

#include <vector>

#include "parallel/comm/communicator.h"

namespace weft {

// Numbers about all tokens of a micro-batch, from those about the tokens here. `ranks` hold the
// other tokens; null: there are none. Collective.
std::vector<int64_t> sum_over_tokens(Exec& exec, Communicator* ranks, std::vector<int64_t> mine);

inline int64_t sum_over_tokens(Exec& exec, Communicator* ranks, int64_t mine) {
  return ranks == nullptr ? mine : sum_over_tokens(exec, ranks, std::vector<int64_t>{mine})[0];
}

}  // namespace weft
