#include <numeric>

#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

// A right program that uses most of what there is.
void right() {
  const Setting s;
  axpy(s.x, s.y, s.n, 2, s.first);
  CUDA(cudaEventRecord(s.event, s.first));
  CUDA(cudaStreamWaitEvent(s.second, s.event, 0));
  axpy(s.x, s.y, s.n, 1, s.second);
  CUDA(cudaMemcpyAsync(s.host, s.y, 4u * 1000, cudaMemcpyDeviceToHost, s.second));
  CUDA(cudaStreamSynchronize(s.second));
  for (int i = 0; i < s.n; ++i) expect(s.host[i] == 1 + 3.0f * static_cast<float>(i), "axpy");

  float* sums = on_device(10);
  sum_rows(s.x, sums, 10, 100, s.first);
  CUDA(cudaMemcpyAsync(s.host, sums, 40, cudaMemcpyDeviceToHost, s.first));
  CUDA(cudaStreamSynchronize(s.first));
  for (int i = 0; i < 10; ++i) {
    expect(s.host[i] == static_cast<float>(i * 10000 + 4950), "sum_rows");
  }
  CUDA(cudaFree(sums));
  s.free();
}

void host_touches_device() {
  const Setting s;
  std::printf("%f\n", static_cast<double>(s.x[3]));
}

void reads_beyond() {
  const Setting s;
  axpy(s.x + 10, s.y, s.n, 1, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void host_pointer_in_kernel() {
  const Setting s;
  const std::vector<float> v(1000, 1.0f);
  axpy(v.data(), s.y, s.n, 1, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void null_pointer() {
  const Setting s;
  axpy(nullptr, s.y, s.n, 1, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void used_after_free() {
  const Setting s;
  CUDA(cudaFree(s.x));
  axpy(s.x, s.y, s.n, 1, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void freed_in_stream_order_too_early() {
  const Setting s;
  float* x = on_device(s.n);
  CUDA(cudaMemsetAsync(x, 0, 4u * 1000, s.first));
  CUDA(cudaEventRecord(s.event, s.first));
  CUDA(cudaStreamWaitEvent(s.second, s.event, 0));
  axpy(x, s.y, s.n, 1, s.second);
  CUDA(cudaFreeAsync(x, s.first));  // nothing says that the kernel comes before
  CUDA(cudaDeviceSynchronize());
}

void reads_what_nobody_wrote() {
  const Setting s;
  float* x = on_device(s.n);
  axpy(x, s.y, s.n, 1, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void copies_what_nobody_wrote() {
  const Setting s;
  float* x = on_device(s.n);
  CUDA(cudaMemcpyAsync(s.host, x, 400, cudaMemcpyDeviceToHost, s.first));
  CUDA(cudaStreamSynchronize(s.first));
}

void misaligned() {
  const Setting s;
  copy_vectors(s.x + 2, s.y, 10, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void freed_twice() {
  const Setting s;
  CUDA(cudaFree(s.x));
  CUDA(cudaFree(s.x));
}

void leaks() {
  on_device(7);
  const Setting s;
  s.free();
}

void runs_out() {
  void* p = nullptr;
  CUDA(cudaMalloc(&p, size_t{40} << 20));
  size_t free = 0, total = 0;
  CUDA(cudaMemGetInfo(&free, &total));
  expect(total == size_t{64} << 20 && free == size_t{24} << 20, "cudaMemGetInfo");
  void* q = nullptr;
  expect(cudaMalloc(&q, size_t{40} << 20) == cudaErrorMemoryAllocation, "out of memory");
  expect(cudaGetLastError() == cudaErrorMemoryAllocation, "last error");
  expect(cudaGetLastError() == cudaSuccess, "it is not sticky");
  CUDA(cudaFree(p));
  CUDA(cudaMalloc(&q, size_t{40} << 20));
  CUDA(cudaFree(q));
}

void managed_is_shared() {
  void* p = nullptr;
  CUDA(cudaMallocManaged(&p, 4000, cudaMemAttachGlobal));
  auto* x = static_cast<float*>(p);
  std::iota(x, x + 1000, 0.0f);
  const cudaStream_t stream = new_stream();
  axpy(x, x, 1000, 1, stream);
  CUDA(cudaStreamSynchronize(stream));
  expect(x[999] == 1998, "managed memory");
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaFree(p));
}

void managed_touched_early() {
  void* p = nullptr;
  CUDA(cudaMallocManaged(&p, 4000, cudaMemAttachGlobal));
  auto* x = static_cast<float*>(p);
  std::iota(x, x + 1000, 0.0f);
  axpy(x, x, 1000, 1, new_stream());
  x[0] = 5;
}

void strided_copies() {
  const Setting s;
  CUDA(cudaMemcpy2DAsync(s.y, 40, s.x, 80, 20, 12, cudaMemcpyDeviceToDevice, s.first));
  const std::vector<float> y = s.read(s.y);
  for (size_t i = 0; i < 120; ++i) {
    const float want = i % 10 < 5 ? static_cast<float>(i / 10 * 20 + i % 10) : 1;
    expect(y[i] == want, "cudaMemcpy2DAsync");
  }
  s.free();
}

}  // namespace

std::vector<NamedCase> memory_cases() {
  return {{"right", right},
          {"host_touches_device", host_touches_device},
          {"reads_beyond", reads_beyond},
          {"host_pointer_in_kernel", host_pointer_in_kernel},
          {"null_pointer", null_pointer},
          {"used_after_free", used_after_free},
          {"freed_in_stream_order_too_early", freed_in_stream_order_too_early},
          {"reads_what_nobody_wrote", reads_what_nobody_wrote},
          {"copies_what_nobody_wrote", copies_what_nobody_wrote},
          {"misaligned", misaligned},
          {"freed_twice", freed_twice},
          {"leaks", leaks},
          {"runs_out", runs_out},
          {"managed_is_shared", managed_is_shared},
          {"managed_touched_early", managed_touched_early},
          {"strided_copies", strided_copies}};
}

}  // namespace vgpu::test
