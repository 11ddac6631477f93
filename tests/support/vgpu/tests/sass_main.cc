#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>

namespace vgpu::test {
void launch_nothing();
}

// vgpu_sass: a program without PTX.
int main() {
  try {
    vgpu::test::launch_nothing();
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 3;
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 4;
  std::printf("done\n");
}
