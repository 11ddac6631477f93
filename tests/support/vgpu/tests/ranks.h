#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// Building blocks of the cases of vgpu_ranks (ranks_main.cc).
namespace vgpu::test {

struct Failed {
  std::string text;
};
void check(bool ok, const char* call);
#define CUDA(call) ::vgpu::test::check((call) == cudaSuccess, #call)
#define NCCL(call) ::vgpu::test::check((call) == ncclSuccess, #call)
void expect(bool right, const std::string& what);

// Position of this process.
extern int rank, size, local_rank;

// A rank's device, communicator and stream.
struct Rank {
  Rank();
  ~Rank();
  template <class T>
  T* put(const std::vector<T>& values) {
    void* p = nullptr;
    CUDA(cudaMalloc(&p, values.size() * sizeof(T)));
    CUDA(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    memory.push_back(p);
    return static_cast<T*>(p);
  }
  template <class T>
  std::vector<T> get(const T* from, size_t count) {
    std::vector<T> values(count);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  cudaStream_t stream;
  ncclComm_t world;
  std::vector<void*> memory;
};

// rank * 10 + i
std::vector<float> floats(int count);

// Waits until standard error, which is a file in these tests, contains the text.
void wait_until_said(const std::string& text);
// Waits until the communicator has an error.
ncclResult_t wait_for_error(Rank& r);
// As a watchdog would; ends the process with 7.
[[noreturn]] void abort(Rank& r);

using Cases = std::map<std::string, std::function<void()>>;
Cases right_cases(), wrong_cases();

}  // namespace vgpu::test
