#pragma once

#include <cstdint>

namespace weft {

// The device that holds bytes and runs work.
struct Device {
  enum class Kind : uint8_t { kCpu, kCuda } kind = Kind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == Kind::kCpu; }
};

}  // namespace weft
