#include "tests/support/vgpu/tests/app.h"

#include <cstdio>
#include <cstring>

namespace vgpu::test {
namespace {

int exit_code = 0;

}  // namespace

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Failed{std::string(call) + ": " + cudaGetErrorName(code)};
}

void expect(bool right, const std::string& what) {
  if (right) return;
  std::printf("wrong: %s\n", what.c_str());
  exit_code = 4;
}

float* on_device(int n) {
  void* p = nullptr;
  CUDA(cudaMalloc(&p, static_cast<size_t>(n) * sizeof(float)));
  return static_cast<float*>(p);
}
float* pinned(int n) {
  void* p = nullptr;
  CUDA(cudaHostAlloc(&p, static_cast<size_t>(n) * sizeof(float), cudaHostAllocDefault));
  return static_cast<float*>(p);
}
cudaStream_t new_stream() {
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

Setting::Setting(int n) : n(n), x(on_device(n)), y(on_device(n)), host(pinned(n)) {
  first = new_stream(), second = new_stream();
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  for (int i = 0; i < n; ++i) host[i] = static_cast<float>(i);
  CUDA(cudaMemcpyAsync(x, host, bytes, cudaMemcpyHostToDevice, first));
  CUDA(cudaStreamSynchronize(first));
  for (int i = 0; i < n; ++i) host[i] = 1;
  CUDA(cudaMemcpyAsync(y, host, bytes, cudaMemcpyHostToDevice, first));
  CUDA(cudaStreamSynchronize(first));
}

void Setting::free() const {
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaEventDestroy(event));
  CUDA(cudaStreamDestroy(first));
  CUDA(cudaStreamDestroy(second));
  CUDA(cudaFree(x));
  CUDA(cudaFree(y));
  CUDA(cudaFreeHost(host));
}

std::vector<float> Setting::read(const float* from) const {
  std::vector<float> values(static_cast<size_t>(n));
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(values.data(), from, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return values;
}

}  // namespace vgpu::test

int main(int count, char** words) {
  using namespace vgpu::test;
  for (const auto& cases : {memory_cases(), order_cases(), thread_cases(), limit_cases(),
                            graph_cases(), device_cases(), product_cases(), random_cases()}) {
    for (const NamedCase& c : cases) {
      if (count != 2 || std::strcmp(c.name, words[1]) != 0) continue;
      try {
        c.run();
      } catch (const Failed& f) {
        std::printf("error: %s\n", f.text.c_str());
        return 3;
      } catch (const std::exception& e) {
        std::printf("error: %s\n", e.what());
        return 3;
      }
      if (exit_code == 0) std::printf("done\n");
      return exit_code;
    }
  }
  std::printf("no such case\n");
  return 2;
}
