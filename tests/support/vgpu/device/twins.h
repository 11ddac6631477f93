#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/vgpu/check/checker.h"
#include "tests/support/vgpu/twin/registry.h"

namespace vgpu {

struct Kernel {
  std::string name;  // mangled
  TwinKernel twin;
  const TwinImage* image;
};

// The twin libraries of this device and the kernels that they registered.
class Twins {
 public:
  explicit Twins(const std::vector<std::string>& paths);
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  void load(const std::string& path);

  std::vector<std::unique_ptr<TwinImage>> images_;
  std::vector<Kernel> kernels_;
};

}  // namespace vgpu
