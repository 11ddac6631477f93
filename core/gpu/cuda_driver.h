#pragma once

#include <string>

namespace weft {

// State of NVIDIA's driver on this machine, read from the driver's library, which is loaded on
// demand. No CUDA toolkit is needed.
struct CudaDriver {
  int version = 0;  // 13000 for CUDA 13.0; 0: no driver
  int devices = 0;
  std::string why_not;  // if not empty: the reason why no device can be used
};

CudaDriver find_cuda_driver();

}  // namespace weft
