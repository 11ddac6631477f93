#include <unistd.h>

#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "tests/support/vgpu/tests/ranks.h"

namespace vgpu::test {
namespace {

void different_counts() {
  Rank r;
  float* x = r.put(floats(6));
  NCCL(ncclAllReduce(x, x, rank == 1 ? 5 : 6, ncclFloat, ncclSum, r.world, r.stream));
  CUDA(cudaStreamSynchronize(r.stream));
}

void different_calls() {
  Rank r;
  float* x = r.put(floats(6));
  if (rank == 1) {
    NCCL(ncclBroadcast(x, x, 6, ncclFloat, 0, r.world, r.stream));
  } else {
    NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  }
  CUDA(cudaStreamSynchronize(r.stream));
}

void different_messages() {
  Rank r;
  float* x = r.put(floats(6));
  if (rank == 0) NCCL(ncclSend(x, 5, ncclFloat, 1, r.world, r.stream));
  if (rank == 1) NCCL(ncclRecv(x, 6, ncclFloat, 0, r.world, r.stream));
  CUDA(cudaStreamSynchronize(r.stream));
}

// Two communicators in two streams, by every rank in another order.
void communicators_in_different_orders() {
  Rank r;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "other";
  ncclComm_t other;
  NCCL(ncclCommSplit(r.world, 0, rank, &other, &config));
  cudaStream_t second;
  CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  float *x = r.put(floats(6)), *y = r.put(floats(3));
  const auto one = [&] { NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream)); };
  const auto two = [&] { NCCL(ncclAllReduce(y, y, 3, ncclFloat, ncclSum, other, second)); };
  rank == 0 ? one() : two();
  usleep(100'000);
  rank == 0 ? two() : one();
  wait_until_said(fmt::format("rank {} of 2 waits", rank));
  expect(cudaStreamQuery(r.stream) == cudaErrorNotReady, "it hangs");
  std::_Exit(7);
}

void both_send_first() {
  Rank r;
  float* x = r.put(floats(6));
  NCCL(ncclSend(x, 3, ncclFloat, 1 - rank, r.world, r.stream));
  NCCL(ncclRecv(x + 3, 3, ncclFloat, 1 - rank, r.world, r.stream));
  wait_until_said(fmt::format("rank {} of 2 waits", rank));
  abort(r);
}

// Rank 1 ends; rank 0 gets the asynchronous error, and continues after an abort.
void a_rank_dies() {
  Rank r;
  float* x = r.put(floats(6));
  if (rank == 1) std::_Exit(9);
  NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  expect(wait_for_error(r) == ncclRemoteError, "the asynchronous error");
  abort(r);
}

// An abort frees a thread that waits for the stream.
void abort_while_another_waits() {
  Rank r;
  float* x = r.put(floats(6));
  if (rank == 0) NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  std::thread watchdog([&] {
    CUDA(cudaSetDevice(local_rank));
    usleep(200'000);
    NCCL(ncclCommAbort(r.world));
  });
  CUDA(cudaStreamSynchronize(r.stream));
  watchdog.join();
  std::_Exit(7);
}

// An error on rank 0, whose call then never ends; the other rank waits for it.
void error_on_request() {
  Rank r;
  float* x = r.put(floats(6));
  NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  if (rank == 0) expect(wait_for_error(r) == ncclRemoteError, "the asynchronous error");
  abort(r);
}

void without_an_event() {
  Rank r;
  float* x = r.put(floats(6));
  cudaStream_t compute;
  CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  CUDA(cudaMemsetAsync(x, 0, 24, compute));
  NCCL(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, r.world, r.stream));
  CUDA(cudaDeviceSynchronize());
}

void host_memory() {
  Rank r;
  std::vector<float> x(6);
  NCCL(ncclAllReduce(x.data(), x.data(), 6, ncclFloat, ncclSum, r.world, r.stream));
}

void one_device_twice() {
  local_rank = 0;
  Rank r;
}

}  // namespace

Cases wrong_cases() {
  return {{"different_counts", different_counts},
          {"different_calls", different_calls},
          {"different_messages", different_messages},
          {"communicators_in_different_orders", communicators_in_different_orders},
          {"both_send_first", both_send_first},
          {"a_rank_dies", a_rank_dies},
          {"abort_while_another_waits", abort_while_another_waits},
          {"error_on_request", error_on_request},
          {"without_an_event", without_an_event},
          {"host_memory", host_memory},
          {"one_device_twice", one_device_twice}};
}

}  // namespace vgpu::test
