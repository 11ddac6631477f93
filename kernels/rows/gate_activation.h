#pragma once

#include <cstdint>

namespace weft::kernels {

// The function of a gate before it multiplies.
enum class GateActivation : uint8_t { kNone, kSilu, kSigmoid };

}  // namespace weft::kernels
