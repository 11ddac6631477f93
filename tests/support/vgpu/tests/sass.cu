#include "kernels/cuda/launch.cuh"

// A kernel that is compiled to machine code for sm_90 alone.
namespace vgpu::test {

__global__ void nothing_kernel() {}

void launch_nothing() {
  weft::kernels::cuda::launch<nothing_kernel>(weft::kernels::cuda::dim3(1), 1, 0, nullptr);
}

}  // namespace vgpu::test
