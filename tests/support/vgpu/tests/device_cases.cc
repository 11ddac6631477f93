#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

// Work of device 1 after work of device 0, through the host's memory.
void two_devices() {
  CUDA(cudaSetDevice(1));
  const Setting b;
  CUDA(cudaSetDevice(0));
  const Setting a;
  axpy(a.x, a.y, a.n, 1, a.first);
  CUDA(cudaMemcpyAsync(a.host, a.y, 4000, cudaMemcpyDeviceToHost, a.first));
  CUDA(cudaEventRecord(a.event, a.first));
  CUDA(cudaSetDevice(1));
  CUDA(cudaStreamWaitEvent(b.first, a.event, 0));
  CUDA(cudaMemcpyAsync(b.x, a.host, 4000, cudaMemcpyHostToDevice, b.first));
  axpy(b.x, b.y, b.n, 1, b.first);
  expect(b.read(b.y)[999] == 1001, "two devices");
  b.free();
  CUDA(cudaSetDevice(0));
  a.free();
}

void host_memory_without_an_event() {
  CUDA(cudaSetDevice(1));
  const Setting b;
  CUDA(cudaSetDevice(0));
  const Setting a;
  CUDA(cudaMemcpyAsync(a.host, a.y, 4000, cudaMemcpyDeviceToHost, a.first));
  CUDA(cudaStreamSynchronize(a.first));
  CUDA(cudaMemcpyAsync(a.host, a.x, 4000, cudaMemcpyDeviceToHost, a.first));
  CUDA(cudaMemcpyAsync(a.host, a.y, 4000, cudaMemcpyDeviceToHost, a.second));
  CUDA(cudaDeviceSynchronize());
}

void stream_of_another_device() {
  const Setting s;
  CUDA(cudaSetDevice(1));
  axpy(s.x, s.y, s.n, 1, s.first);
}

void pointer_of_another_device() {
  const Setting a;
  CUDA(cudaSetDevice(1));
  const Setting b;
  axpy(a.x, b.y, b.n, 1, b.first);
  CUDA(cudaStreamSynchronize(b.first));
}

void no_such_device() { CUDA(cudaSetDevice(1)); }

// For faults: ten launches, an allocation each, a wait each.
void ten_launches() {
  const Setting s;
  for (int i = 0; i < 10; ++i) {
    float* z = on_device(1);
    axpy(s.x, s.y, s.n, 1, s.first);
    CUDA(cudaStreamSynchronize(s.first));
    CUDA(cudaFree(z));
  }
  s.free();
}

// After an error every call returns it; the process continues.
void error_is_sticky() {
  const Setting s;
  axpy(s.x, s.y, s.n, 1, s.first);
  const cudaError_t code = cudaStreamSynchronize(s.first);
  expect(code == cudaErrorECCUncorrectable, "the error");
  expect(cudaGetLastError() == code && cudaGetLastError() == code, "it is sticky");
  void* p = nullptr;
  expect(cudaMalloc(&p, 4) == code && cudaFree(s.x) == code, "every call returns it");
}

// Until a file of that name is in the folder of the run.
void wait_for_file(const char* name) {
  const std::string path = std::string(std::getenv("VGPU_RUN")) + "/" + name;
  while (access(path.c_str(), R_OK) != 0) usleep(10'000);
}

void hangs() {
  const Setting s;
  axpy(s.x, s.y, s.n, 1, s.first);
  wait_for_file("go");
  expect(cudaStreamQuery(s.first) == cudaErrorNotReady, "a kernel that never ends");
  std::printf("still running\n");
  std::fflush(stdout);
  _exit(5);
}

}  // namespace

std::vector<NamedCase> device_cases() {
  return {{"two_devices", two_devices},
          {"host_memory_without_an_event", host_memory_without_an_event},
          {"stream_of_another_device", stream_of_another_device},
          {"pointer_of_another_device", pointer_of_another_device},
          {"no_such_device", no_such_device},
          {"ten_launches", ten_launches},
          {"error_is_sticky", error_is_sticky},
          {"hangs", hangs}};
}

}  // namespace vgpu::test
