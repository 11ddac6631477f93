#pragma once

#include <cstdint>

namespace weft::kernels {

// What a gate does to its input before it multiplies.
enum class GateActivation : uint8_t { kNone, kSilu, kSigmoid };

}  // namespace weft::kernels
