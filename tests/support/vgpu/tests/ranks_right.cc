#include "tests/support/vgpu/tests/ranks.h"

namespace vgpu::test {
namespace {

void collectives_are_right() {
  Rank r;
  const int n = size;
  float* x = r.put(floats(6));
  NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  for (int i = 0; i < 6; ++i) {
    expect(r.get(x, 6)[static_cast<size_t>(i)] == static_cast<float>(10 * n * (n - 1) / 2 + n * i),
           "all_reduce");
  }
  int64_t* big = r.put<int64_t>({int64_t{1} << 60, rank});
  NCCL(ncclAllReduce(big, big, 2, ncclInt64, ncclMax, r.world, r.stream));
  expect(r.get(big, 2) == std::vector<int64_t>{int64_t{1} << 60, n - 1}, "max");

  float* all = r.put(std::vector<float>(static_cast<size_t>(2 * n)));
  float* mine = r.put(floats(2));
  NCCL(ncclAllGather(mine, all, 2, ncclFloat, r.world, r.stream));
  for (int from = 0; from < n; ++from) {
    expect(r.get(all, 2 * static_cast<size_t>(n))[static_cast<size_t>(2 * from + 1)] ==
               static_cast<float>(from * 10 + 1),
           "all_gather");
  }
  NCCL(ncclReduceScatter(all, mine, 2, ncclFloat, ncclAvg, r.world, r.stream));
  expect(r.get(mine, 2)[0] == static_cast<float>(rank * 10), "reduce_scatter");

  float* to = r.put(std::vector<float>(static_cast<size_t>(n)));
  float* from = r.put(floats(n));
  NCCL(ncclAlltoAll(from, to, 1, ncclFloat, r.world, r.stream));
  for (int k = 0; k < n; ++k)
    expect(r.get(to, static_cast<size_t>(n))[static_cast<size_t>(k)] ==
               static_cast<float>(k * 10 + rank),
           "all_to_all");
  NCCL(ncclBroadcast(from, to, static_cast<size_t>(n), ncclFloat, n - 1, r.world, r.stream));
  expect(r.get(to, 1)[0] == static_cast<float>((n - 1) * 10), "broadcast");
  NCCL(ncclReduce(from, to, 1, ncclFloat, ncclProd, 0, r.world, r.stream));
  expect(r.get(to, 1)[0] == (rank == 0 ? 0 : static_cast<float>((n - 1) * 10)), "reduce");
}

// Sums of bf16 round at each step; which way they round is the same everywhere.
void sums_round_alike() {
  Rank r;
  std::vector<uint16_t> values(100);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<uint16_t>(0x3f80 + (i * 37 + static_cast<size_t>(rank) * 11) % 128);
  uint16_t* x = r.put(values);
  uint16_t* all = r.put(std::vector<uint16_t>(100 * static_cast<size_t>(size)));
  NCCL(ncclAllReduce(x, x, 100, ncclBfloat16, ncclSum, r.world, r.stream));
  NCCL(ncclAllGather(x, all, 100, ncclBfloat16, r.world, r.stream));
  const auto got = r.get(all, 100 * static_cast<size_t>(size));
  for (size_t i = 0; i < got.size(); ++i) expect(got[i] == got[i % 100], "the same bits");
}

// All pairs of ranks with different counts; a rank to itself only by a copy; and one message to
// itself.
void messages_are_right() {
  Rank r;
  float* from = r.put(floats(100));
  float* to = r.put(std::vector<float>(static_cast<size_t>(100 * size), -1));
  for (int round = 0; round < 3; ++round) {
    NCCL(ncclGroupStart());
    for (int peer = 0; peer < size; ++peer) {
      NCCL(
          ncclSend(from, static_cast<size_t>(rank + peer + 1), ncclFloat, peer, r.world, r.stream));
      NCCL(ncclRecv(to + 100 * peer, static_cast<size_t>(rank + peer + 1), ncclFloat, peer, r.world,
                    r.stream));
    }
    NCCL(ncclGroupEnd());
  }
  const auto got = r.get(to, static_cast<size_t>(100 * size));
  for (int peer = 0; peer < size; ++peer) {
    for (int i = 0; i < 100; ++i) {
      const float want = i <= rank + peer ? static_cast<float>(peer * 10 + i) : -1;
      expect(got[static_cast<size_t>(100 * peer + i)] == want, "messages");
    }
  }
}

void splits_are_right() {
  Rank r;
  ncclComm_t half, none;
  NCCL(ncclCommSplit(r.world, rank % 2, -rank, &half, nullptr));
  int count = 0, place = 0;
  NCCL(ncclCommCount(half, &count));
  NCCL(ncclCommUserRank(half, &place));
  expect(count == (size + 1 - rank % 2) / 2, "size of a split");
  expect(place == (size - 1 - rank) / 2, "order by keys");
  NCCL(ncclCommSplit(r.world, rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
  expect((none == nullptr) == (rank != 0), "no color");
  float* x = r.put<float>({1});
  NCCL(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, half, r.stream));
  expect(r.get(x, 1)[0] == static_cast<float>(count), "a sum in a split");
  NCCL(ncclCommDestroy(half));
  if (none != nullptr) NCCL(ncclCommDestroy(none));
}

// One process, one thread, all devices.
void devices_of_one_process() {
  std::vector<ncclComm_t> comms(4);
  std::vector<cudaStream_t> streams(4);
  std::vector<float*> x(4);
  NCCL(ncclCommInitAll(comms.data(), 4, nullptr));
  for (int d = 0; d < 4; ++d) {
    CUDA(cudaSetDevice(d));
    CUDA(cudaStreamCreateWithFlags(&streams[static_cast<size_t>(d)], cudaStreamNonBlocking));
    void* p = nullptr;
    CUDA(cudaMalloc(&p, 4));
    x[static_cast<size_t>(d)] = static_cast<float*>(p);
    const auto value = static_cast<float>(d + 1);
    CUDA(cudaMemcpy(p, &value, 4, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
  }
  NCCL(ncclGroupStart());
  for (size_t d = 0; d < 4; ++d)
    NCCL(ncclAllReduce(x[d], x[d], 1, ncclFloat, ncclSum, comms[d], streams[d]));
  NCCL(ncclGroupEnd());
  for (size_t d = 0; d < 4; ++d) {
    CUDA(cudaSetDevice(static_cast<int>(d)));
    CUDA(cudaStreamSynchronize(streams[d]));
    float value = 0;
    CUDA(cudaMemcpy(&value, x[d], 4, cudaMemcpyDeviceToHost));
    expect(value == 10, "all_reduce over devices");
    NCCL(ncclCommDestroy(comms[d]));
    CUDA(cudaStreamDestroy(streams[d]));
    CUDA(cudaFree(x[d]));
  }
}

}  // namespace

Cases right_cases() {
  return {{"collectives_are_right", collectives_are_right},
          {"sums_round_alike", sums_round_alike},
          {"messages_are_right", messages_are_right},
          {"splits_are_right", splits_are_right},
          {"devices_of_one_process", devices_of_one_process}};
}

}  // namespace vgpu::test
