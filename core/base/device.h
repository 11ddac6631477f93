#pragma once

#include <cstdint>

namespace weft {

// Where bytes live and work runs.
struct Device {
  enum class Kind : uint8_t { kCpu, kCuda } kind = Kind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == Kind::kCpu; }
};

}  // namespace weft
