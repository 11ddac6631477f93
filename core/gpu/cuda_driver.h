#pragma once

#include <string>

namespace weft {

// What NVIDIA's driver says of this machine. The driver's library is loaded for the question; no
// toolkit is needed to ask it.
struct CudaDriver {
  int version = 0;  // 13000 for CUDA 13.0; 0: no driver
  int devices = 0;
  std::string why_not;  // not empty: no device can be used, and this is why
};

CudaDriver find_cuda_driver();

}  // namespace weft
