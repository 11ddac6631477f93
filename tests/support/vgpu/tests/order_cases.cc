#include <unistd.h>

#include <cstring>

#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

constexpr size_t kBytes = 4000;

void missing_event() {
  const Setting s;
  axpy(s.x, s.y, s.n, 1, s.first);
  axpy(s.x, s.y, s.n, 1, s.second);
  CUDA(cudaDeviceSynchronize());
}

// The numbers come out right, since the first kernel has long ended. It is wrong all the same.
void late_without_event() {
  const Setting s;
  axpy(s.x, s.y, s.n, 1, s.first);
  usleep(100'000);
  CUDA(cudaMemcpyAsync(s.host, s.y, kBytes, cudaMemcpyDeviceToHost, s.second));
  CUDA(cudaStreamSynchronize(s.second));
  expect(s.host[999] == 1000, "axpy");
}

// The event is recorded before the kernel that it should follow.
void event_too_early() {
  const Setting s;
  CUDA(cudaEventRecord(s.event, s.first));
  axpy(s.x, s.y, s.n, 1, s.first);
  CUDA(cudaStreamWaitEvent(s.second, s.event, 0));
  axpy(s.x, s.y, s.n, 1, s.second);
  CUDA(cudaDeviceSynchronize());
}

// Two streams read, one of them is waited for, then the memory is written: a pool that hands it
// out again too early.
void written_while_another_reads() {
  const Setting s;
  float* z = on_device(s.n);
  CUDA(cudaMemsetAsync(z, 0, kBytes, s.second));
  axpy(s.x, s.y, s.n, 1, s.first);
  CUDA(cudaEventRecord(s.event, s.first));
  axpy(s.x, z, s.n, 1, s.second);  // reads x too
  const cudaStream_t third = new_stream();
  CUDA(cudaStreamWaitEvent(third, s.event, 0));
  CUDA(cudaMemsetAsync(s.x, 0, kBytes, third));
  CUDA(cudaDeviceSynchronize());
}

// A destroyed stream still runs its commands; one that takes its place is not behind them.
void next_stream_without_event() {
  const Setting s;
  const cudaStream_t third = new_stream();
  axpy(s.x, s.y, s.n, 1, third);
  CUDA(cudaStreamDestroy(third));
  const cudaStream_t fourth = new_stream();
  axpy(s.x, s.y, s.n, 1, fourth);
  CUDA(cudaDeviceSynchronize());
}

// More streams than there are at a time, one after the other.
void many_streams() {
  const Setting s;
  for (int i = 0; i < 1000; ++i) {
    const cudaStream_t stream = new_stream();
    axpy(s.x, s.y, s.n, 1, stream);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
  }
  expect(s.read(s.y)[1] == 1001, "axpy");
  s.free();
}

void default_stream_orders() {
  const Setting s;
  cudaStream_t blocking;
  CUDA(cudaStreamCreate(&blocking));
  for (int i = 0; i < 5; ++i) {
    axpy(s.x, s.y, s.n, 1, blocking);
    axpy(s.x, s.y, s.n, 1, nullptr);
  }
  const std::vector<float> y = s.read(s.y);
  expect(y[999] == 1 + 10 * 999, "order with the default stream");
  CUDA(cudaStreamDestroy(blocking));
  s.free();
}

void events_tell_time() {
  const Setting s;
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  CUDA(cudaEventRecord(begin, s.first));
  for (int i = 0; i < 5; ++i) axpy(s.x, s.y, s.n, 1, s.first);
  CUDA(cudaEventRecord(end, s.first));
  CUDA(cudaEventSynchronize(end));
  float milliseconds = -1;
  CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  expect(milliseconds > 0, "elapsed time");
  expect(cudaEventQuery(end) == cudaSuccess && cudaStreamQuery(s.first) == cudaSuccess, "query");
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  s.free();
}

void pageable_copy() {
  const Setting s;
  std::vector<float> v(1000);
  CUDA(cudaMemcpyAsync(v.data(), s.x, kBytes, cudaMemcpyDeviceToHost, s.first));
}

void pinned_written_early() {
  const Setting s;
  CUDA(cudaMemcpyAsync(s.x, s.host, kBytes, cudaMemcpyHostToDevice, s.first));
  s.host[500] = 3;
}

void pinned_read_early() {
  const Setting s;
  CUDA(cudaMemcpyAsync(s.host, s.x, kBytes, cudaMemcpyDeviceToHost, s.first));
  std::printf("%f\n", static_cast<double>(s.host[500]));
}

// Keeps a stream busy for long, so that the copy behind it is made after what the host does.
void keep_busy(const Setting& s) {
  CUDA(cudaMemsetAsync(s.y, 0, kBytes, s.first));
  slow_increment(reinterpret_cast<int*>(s.y), 32, 200'000, s.first);
}

// A source that shares its page with other numbers, which may be written.
void part_written_early() {
  const Setting s;
  keep_busy(s);
  CUDA(cudaMemcpyAsync(s.x, s.host, 400, cudaMemcpyHostToDevice, s.first));
  s.host[200] = 3;  // not a part of it
  s.host[50] = 3;
  CUDA(cudaStreamSynchronize(s.first));
}

// An early read does not return the old bytes.
void part_read_early() {
  const Setting s;
  keep_busy(s);
  CUDA(cudaMemcpyAsync(s.host, s.x, 400, cudaMemcpyDeviceToHost, s.first));
  expect(s.host[50] != s.host[50] && s.host[200] == 1, "nonsense where the copy will write");
  CUDA(cudaStreamSynchronize(s.first));
  expect(s.host[50] == 50, "the copy");
  s.free();
}

// Buffers in turn, as a pipeline of copies uses them: right.
void pinned_in_turn() {
  const Setting s;
  for (int i = 0; i < 20; ++i) {
    CUDA(cudaEventSynchronize(s.event));
    for (int k = 0; k < 100; ++k) s.host[k] = static_cast<float>(i);
    CUDA(cudaMemcpyAsync(s.y, s.host, 400, cudaMemcpyHostToDevice, s.first));
    CUDA(cudaEventRecord(s.event, s.first));
    CUDA(cudaMemcpyAsync(s.host + 100, s.y, 400, cudaMemcpyDeviceToHost, s.first));
    CUDA(cudaMemcpyAsync(s.x, s.host + 100, 400, cudaMemcpyHostToDevice, s.first));
  }
  expect(s.read(s.x)[7] == 19, "the last round");
  s.free();
}

void wrong_direction() {
  const Setting s;
  CUDA(cudaMemcpyAsync(s.x, s.y, kBytes, cudaMemcpyHostToDevice, s.first));
}

}  // namespace

std::vector<NamedCase> order_cases() {
  return {{"missing_event", missing_event},
          {"late_without_event", late_without_event},
          {"event_too_early", event_too_early},
          {"written_while_another_reads", written_while_another_reads},
          {"next_stream_without_event", next_stream_without_event},
          {"many_streams", many_streams},
          {"default_stream_orders", default_stream_orders},
          {"events_tell_time", events_tell_time},
          {"pageable_copy", pageable_copy},
          {"pinned_written_early", pinned_written_early},
          {"pinned_read_early", pinned_read_early},
          {"part_written_early", part_written_early},
          {"part_read_early", part_read_early},
          {"pinned_in_turn", pinned_in_turn},
          {"wrong_direction", wrong_direction}};
}

}  // namespace vgpu::test
