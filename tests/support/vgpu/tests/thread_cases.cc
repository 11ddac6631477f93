#include <cstring>

#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

void rotate_once(int n, Sync sync) {
  const Setting s;
  rotate(s.x, s.y, n, sync, s.first);
  const std::vector<float> y = s.read(s.y);
  for (int i = 0; i < n; ++i) {
    expect(y[static_cast<size_t>(i)] == static_cast<float>((i + 1) % n), "rotate");
  }
  s.free();
}

void barrier_orders() { rotate_once(96, Sync::kBarrier); }
void warp_barrier_orders() { rotate_once(32, Sync::kWarp); }
void missing_barrier() { rotate_once(96, Sync::kNone); }
// Enough within a warp, but threads of two warps exchange numbers here.
void warp_barrier_between_warps() { rotate_once(64, Sync::kWarp); }
void missing_warp_barrier() { rotate_once(32, Sync::kNone); }

void divergent_barrier() {
  const Setting s;
  half_a_barrier(s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

int* integers(const Setting& s, const std::vector<int>& values) {
  auto* x = reinterpret_cast<int*>(on_device(static_cast<int>(values.size())));
  CUDA(cudaMemcpy(x, values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaStreamSynchronize(s.first));
  return x;
}

void atomics_are_no_race() {
  const Setting s;
  std::vector<int> values(1000), sums(8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i % 7);
  int *x = integers(s, values), *bins = integers(s, sums);
  histogram(x, 1000, bins, bins + 7, s.first);
  CUDA(cudaStreamSynchronize(s.first));
  CUDA(cudaMemcpy(sums.data(), bins, 32, cudaMemcpyDeviceToHost));
  expect(sums[0] == 143 && sums[6] == 142 && sums[7] == 142 * 21 + 15, "histogram");
  CUDA(cudaFree(x));
  CUDA(cudaFree(bins));
  s.free();
}

void blocks_write_one_number() {
  const Setting s;
  int* x = integers(s, {0});
  write_one(x, 3, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

void one_block_writes_one_number() {
  const Setting s;
  int* x = integers(s, {5});
  write_one(x, 1, s.first);
  CUDA(cudaStreamSynchronize(s.first));
  int value = 9;
  CUDA(cudaMemcpy(&value, x, 4, cudaMemcpyDeviceToHost));
  expect(value == 0, "write_one");
  CUDA(cudaFree(x));
  s.free();
}

void static_shared(bool written) {
  const Setting s;
  read_static_shared(s.y, written, s.first);
  expect(s.read(s.y)[31] == 3, "a __shared__ variable");
  s.free();
}
void static_shared_works() { static_shared(true); }
void static_shared_unwritten() { static_shared(false); }

void beyond_shared() {
  const Setting s;
  read_beyond_shared(s.y, 40, s.first);
  CUDA(cudaStreamSynchronize(s.first));
}

// Neighbours in one word that belong to two threads are no race.
void small_numbers() {
  const Setting s;
  std::vector<uint16_t> halves(100, 0x3f80);  // 1 as bf16
  std::vector<uint8_t> bytes(100, 0x0f);
  CUDA(cudaMemcpy(s.x, halves.data(), 200, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(s.y, bytes.data(), 100, cudaMemcpyHostToDevice));
  CUDA(cudaDeviceSynchronize());
  double_halves(reinterpret_cast<uint16_t*>(s.x), 100, s.first);
  negate_bytes(reinterpret_cast<uint8_t*>(s.y), 100, s.first);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(halves.data(), s.x, 200, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(bytes.data(), s.y, 100, cudaMemcpyDeviceToHost));
  expect(halves[99] == 0x4000 && bytes[99] == 0xf0, "small numbers");
  s.free();
}

}  // namespace

std::vector<NamedCase> thread_cases() {
  return {{"barrier_orders", barrier_orders},
          {"warp_barrier_orders", warp_barrier_orders},
          {"missing_barrier", missing_barrier},
          {"warp_barrier_between_warps", warp_barrier_between_warps},
          {"missing_warp_barrier", missing_warp_barrier},
          {"divergent_barrier", divergent_barrier},
          {"atomics_are_no_race", atomics_are_no_race},
          {"blocks_write_one_number", blocks_write_one_number},
          {"one_block_writes_one_number", one_block_writes_one_number},
          {"static_shared_works", static_shared_works},
          {"static_shared_unwritten", static_shared_unwritten},
          {"beyond_shared", beyond_shared},
          {"small_numbers", small_numbers}};
}

}  // namespace vgpu::test
