#pragma once

#include <cstdint>

namespace weft::kernels {

// How a result is stored: y = ..., or y += ...
enum class Write : uint8_t { kReplace, kAccumulate };

}  // namespace weft::kernels
