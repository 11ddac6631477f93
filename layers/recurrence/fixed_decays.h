#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// Log decays of `heads` heads that no weight moves.

// RetNet: log(1 - 2^{-5-h})
std::vector<float> retnet_log_decays(int64_t heads);

// Lightning attention: -factor * s_h with ALiBi's slopes s_h
std::vector<float> alibi_log_decays(int64_t heads, double factor = 1.0);

}  // namespace weft
