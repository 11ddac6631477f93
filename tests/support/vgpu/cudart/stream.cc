#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include "tests/support/vgpu/host/api.h"
#include "tests/support/vgpu/host/capture.h"

using namespace vgpu;

namespace {

cudaError_t create(Runtime& r, cudaStream_t* to, unsigned flags) {
  r.device(r.current_device());
  *to = r.streams.handle_of(
      r.streams.create(r.current_device(), (flags & cudaStreamNonBlocking) == 0));
  return cudaSuccess;
}

Event& event_of(Runtime& r, cudaEvent_t handle) {
  Event* event = r.streams.find_event(handle);
  if (event == nullptr) {
    r.mistake(cudaErrorInvalidResourceHandle, "an event that does not exist, or was destroyed");
  }
  return *event;
}

// A stream of any device.
Stream& any_stream(Runtime& r, cudaStream_t handle) {
  r.device(r.current_device());
  Stream* stream = r.streams.find(handle, r.current_device());
  if (stream == nullptr) {
    r.mistake(cudaErrorInvalidResourceHandle, "a stream that does not exist, or was destroyed");
  }
  return *stream;
}

void wait_for(Runtime& r, Lock& lock, int device, const Mark& mark) {
  ++r.report.host_waits[current_call.name];
  r.host_wait(lock, device, mark);
}

void record(Runtime& r, Event& event, Stream& stream) {
  if (event.device != stream.device) {
    r.mistake(cudaErrorInvalidResourceHandle,
              fmt::format("an event of device {} recorded in a stream of device {}", event.device,
                          stream.device));
  }
  event.recorded = true;
  event.capture = stream.capture;
  if (stream.capture != nullptr) {
    event.node = stream.capture->newest(stream);
    return;
  }
  if (event.timing) r.enqueue(stream, Op::kStamp, Writer().put(event.stamp_slot).bytes());
  event.mark = stream.mark();
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* to) {
  VGPU_API({ return create(r, to, cudaStreamDefault); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* to, unsigned flags) {
  VGPU_API({ return create(r, to, flags); });
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned flags, int) {
  VGPU_API({ return create(r, to, flags); });
}
// Commands already in the stream still run.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  VGPU_API({
    Stream& stream = any_stream(r, handle);
    if (stream.is_default) return cudaErrorInvalidResourceHandle;
    r.streams.destroy(&stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  VGPU_API({
    r.check_can_wait("a wait");
    const Stream& stream = any_stream(r, handle);
    wait_for(r, lock, stream.device, stream.mark());
    return cudaSuccess;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  VGPU_API({
    r.check_can_wait("a query");
    const Mark mark = any_stream(r, handle).mark();
    if (!r.is_done(mark)) return cudaErrorNotReady;
    r.host_knows(mark);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSynchronize() {
  VGPU_API({
    r.check_can_wait("a wait");
    r.device(r.current_device());
    ++r.report.host_waits[current_call.name];
    r.wait_for_device(lock, r.current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  VGPU_API({
    Stream& stream = any_stream(r, handle);
    const Event& event = event_of(r, event_handle);
    if (!event.recorded) return cudaSuccess;  // as documented: nothing to wait for
    if (event.capture != nullptr) {
      if (stream.capture != nullptr && stream.capture != event.capture) {
        return cudaErrorStreamCaptureMerge;
      }
      event.capture->wait(&stream, event.node);
      return cudaSuccess;
    }
    if (stream.capture != nullptr) {
      stream.capture->make_void();
      return cudaErrorStreamCaptureIsolation;
    }
    r.wait_in_stream(stream, event.mark);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* to) {
  return cudaEventCreateWithFlags(to, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned flags) {
  VGPU_API({
    r.device(r.current_device());
    const bool timing = (flags & cudaEventDisableTiming) == 0;
    *to = reinterpret_cast<cudaEvent_t>(r.streams.create_event(r.current_device(), timing));
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  VGPU_API({
    r.streams.destroy_event(&event_of(r, handle));
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  VGPU_API({
    record(r, event_of(r, handle), any_stream(r, stream));
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned) {
  return cudaEventRecord(handle, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  VGPU_API({
    r.check_can_wait("a wait");
    Event& event = event_of(r, handle);
    wait_for(r, lock, event.device, event.mark);
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  VGPU_API({
    Event& event = event_of(r, handle);
    if (!r.is_done(event.mark)) return cudaErrorNotReady;
    r.host_knows(event.mark);
    return cudaSuccess;
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  VGPU_API({
    Event& a = event_of(r, first);
    Event& b = event_of(r, second);
    if (!a.recorded || !b.recorded || !a.timing || !b.timing) return cudaErrorInvalidResourceHandle;
    if (!r.is_done(a.mark) || !r.is_done(b.mark)) return cudaErrorNotReady;
    const auto nanoseconds = static_cast<int64_t>(r.board().stamps[b.stamp_slot]) -
                             static_cast<int64_t>(r.board().stamps[a.stamp_slot]);
    *milliseconds = static_cast<float>(static_cast<double>(nanoseconds) / 1e6);
    return cudaSuccess;
  });
}

}  // extern "C"
