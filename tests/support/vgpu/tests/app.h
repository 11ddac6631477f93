#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/vgpu/tests/kernels.h"

// vgpu_app CASE: a small CUDA program, right or with one mistake. Linked against NVIDIA's runtime
// like any other; the tests run it on the virtual GPU.
namespace vgpu::test {

// Thrown where a call fails; main prints "error: CALL: NAME" and returns 3.
struct Failed {
  std::string text;
};
void check(cudaError_t code, const char* call);
#define CUDA(call) ::vgpu::test::check(call, #call)

// Prints "wrong: WHAT" and makes main return 4.
void expect(bool right, const std::string& what);

// n floats in device or pinned memory, and a stream; freed by hand, as the tests need it.
float* on_device(int n);
float* pinned(int n);
cudaStream_t new_stream();

// Start of most cases: x = 0, 1, 2, ... and y = 1 on the device, two streams.
struct Setting {
  explicit Setting(int n = 1000);
  void free() const;
  std::vector<float> read(const float* from) const;  // waits for the whole device

  int n;
  float *x, *y, *host;
  cudaStream_t first, second;
  cudaEvent_t event;
};

using Case = void (*)();
struct NamedCase {
  const char* name;
  Case run;
};
std::vector<NamedCase> memory_cases(), order_cases(), thread_cases(), limit_cases(), graph_cases(),
    device_cases(), product_cases(), random_cases();

}  // namespace vgpu::test
