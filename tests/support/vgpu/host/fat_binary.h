#pragma once

#include <string>
#include <vector>

namespace vgpu {

// Images that nvcc embeds for kernels: PTX and machine code by compute capability.
struct FatBinary {
  struct Image {
    bool is_ptx;
    int architecture;  // 90
  };
  std::vector<Image> images;

  // `wrapper`: the argument of __cudaRegisterFatBinary.
  static FatBinary read(const void* wrapper);
  // PTX runs on its architecture and newer ones, machine code on those of the same major number.
  bool runs_on(int architecture) const;
  std::string list() const;  // "compute_80, sm_90"
};

}  // namespace vgpu
