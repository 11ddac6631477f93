// vgpu_bench: what launches, small kernels and scans cost on the virtual GPU. One line each: name,
// microseconds. tests/support/vgpu/bench compares the checked twin with the fast one.
#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/scan/cuda/scalar_scan.h"
#include "tests/support/vgpu/tests/kernels.h"

namespace {

namespace cuda = weft::kernels::cuda;

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  fmt::print("error: {}: {}\n", call, cudaGetErrorString(code));
  std::exit(3);
}
#define CUDA(call) check(call, #call)

cudaStream_t stream;

template <class T>
T* filled(int64_t n) {
  void* p = nullptr;
  CUDA(cudaMalloc(&p, static_cast<size_t>(n) * sizeof(T)));
  CUDA(cudaMemset(p, 0, static_cast<size_t>(n) * sizeof(T)));
  CUDA(cudaDeviceSynchronize());
  return static_cast<T*>(p);
}

// The best of nine, `times` calls and one wait each.
void measure(const std::string& name, int times, const std::function<void()>& call) {
  call();
  CUDA(cudaStreamSynchronize(stream));
  double best = 1e30;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < times; ++k) call();
    CUDA(cudaStreamSynchronize(stream));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / times);
  }
  fmt::print("{:<44} {:10.1f}\n", name, best);
}

void measure_scan(int tokens, int width, bool narrow) {
  constexpr int kHeads = 2;
  const int64_t row = kHeads * width;
  auto* x = filled<float>(tokens * row);
  cuda::ScanProblem p;
  p.q = p.k = p.v = {x, row, narrow};
  p.log_decay = {filled<float>(tokens * kHeads), kHeads};
  p.heads = p.kv_heads = kHeads, p.key = p.value = width;
  p.token_count = tokens, p.document_count = 1;
  const std::vector<int32_t> documents{0, tokens};
  const auto chunks = cuda::chunks_before(documents, cuda::scan_chunk(p));
  auto* lists = filled<int32_t>(4);
  CUDA(cudaMemcpy(lists, documents.data(), 8, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(lists + 2, chunks.data(), 8, cudaMemcpyHostToDevice));
  p.documents = lists, p.chunks_before = lists + 2, p.chunk_count = chunks.back();
  auto* scratch =
      filled<float>(std::max(cuda::scan_forward_scratch(p), cuda::scan_backward_scratch(p)));
  const auto to = [&] { return cuda::ScanMatrix<void>{filled<float>(tokens * row), row, narrow}; };
  const cuda::ScanForward forward{nullptr, to(), nullptr};
  const cuda::ScanBackward backward{nullptr, {x, row, narrow}, nullptr, to(), to(), to(),
                                    {},      nullptr};
  const std::string what =
      fmt::format("{} tokens, {} wide, {}", tokens, width, narrow ? "bf16" : "f32");
  measure("scan forward, " + what, 1, [&] { cuda::scan_forward(p, forward, scratch, stream); });
  measure("scan backward, " + what, 1, [&] { cuda::scan_backward(p, backward, scratch, stream); });
}

}  // namespace

int main() {
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr int kNumbers = 32768;
  auto *x = filled<float>(kNumbers), *y = filled<float>(kNumbers);
  measure("launch and wait, 256 threads", 1, [&] { vgpu::test::axpy(x, y, 256, 1, stream); });
  measure("launch, queued", 100, [&] { vgpu::test::axpy(x, y, 256, 1, stream); });
  measure("axpy, 32768 numbers", 1, [&] { vgpu::test::axpy(x, y, kNumbers, 1, stream); });
  measure("sums of 64 rows of 512", 1, [&] { vgpu::test::sum_rows(x, y, 64, 512, stream); });
  for (const bool narrow : {false, true}) {
    measure_scan(64, 16, narrow);
    measure_scan(128, narrow ? 128 : 64, narrow);
  }
  std::fflush(stdout);
  std::_Exit(0);  // nothing is freed
}
