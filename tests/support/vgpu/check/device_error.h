#pragma once

#include <stdexcept>
#include <string>

namespace vgpu {

// Ends all work of a device: the sticky error and its explanation.
class DeviceError : public std::runtime_error {
 public:
  DeviceError(int code, const std::string& text) : std::runtime_error(text), code(code) {}
  int code;  // cudaError_t
};

}  // namespace vgpu
