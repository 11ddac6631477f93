#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

struct Counter {
  Counter() : count(reinterpret_cast<int*>(on_device(1))), stream(new_stream()) {
    CUDA(cudaMemsetAsync(count, 0, 4, stream));
    CUDA(cudaStreamSynchronize(stream));
  }
  int value() const {
    int x = -1;
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(&x, count, 4, cudaMemcpyDeviceToHost));
    return x;
  }
  void free() const {
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(count));
  }
  int* count;
  cudaStream_t stream;
};

void launches_what_fits() {
  const Counter c;
  count_threads(c.count, 3, 2, 1024, 0, c.stream);
  count_threads(c.count, 1, 1, 1, 100 << 10, c.stream);
  count_threads_by_chevrons(c.count, 32, 48 << 10, c.stream);
  expect(c.value() == 6 * 1024 + 1 + 32, "threads");
  c.free();
}

void launch_once(int grid_x, int grid_y, int threads, int shared) {
  const Counter c;
  count_threads(c.count, grid_x, grid_y, threads, shared, c.stream);
  CUDA(cudaStreamSynchronize(c.stream));
}
void no_blocks() { launch_once(0, 1, 32, 0); }
void too_many_rows_of_blocks() { launch_once(1, 65536, 32, 0); }
void too_many_threads() { launch_once(1, 1, 1025, 0); }
void too_much_shared() { launch_once(1, 1, 32, 200 << 10); }
void too_many_registers() { launch_once(1, 1, 1024, 0); }

void shared_without_attribute() {
  const Counter c;
  count_threads_by_chevrons(c.count, 32, (48 << 10) + 4, c.stream);
  CUDA(cudaGetLastError());
}

void no_code_for_this_device() { launch_once(1, 1, 32, 0); }

void tells_what_it_is() {
  cudaDeviceProp p;
  CUDA(cudaGetDeviceProperties(&p, 0));
  int optin = 0, major = 0;
  CUDA(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  std::printf("%s, sm_%d%d, %d %zu %d\n", p.name, p.major, p.minor, optin, p.sharedMemPerBlockOptin,
              major);
}

}  // namespace

std::vector<NamedCase> limit_cases() {
  return {{"launches_what_fits", launches_what_fits},
          {"no_blocks", no_blocks},
          {"too_many_rows_of_blocks", too_many_rows_of_blocks},
          {"too_many_threads", too_many_threads},
          {"too_much_shared", too_much_shared},
          {"too_many_registers", too_many_registers},
          {"shared_without_attribute", shared_without_attribute},
          {"no_code_for_this_device", no_code_for_this_device},
          {"tells_what_it_is", tells_what_it_is}};
}

}  // namespace vgpu::test
