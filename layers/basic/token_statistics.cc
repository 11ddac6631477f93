#include "layers/basic/token_statistics.h"

namespace weft {

std::vector<int64_t> sum_over_tokens(Exec&, Communicator* ranks, std::vector<int64_t> mine) {
  return ranks == nullptr ? mine : ranks->hosts().sums(mine);
}

}  // namespace weft
