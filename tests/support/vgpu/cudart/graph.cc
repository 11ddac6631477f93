#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "tests/support/vgpu/host/api.h"
#include "tests/support/vgpu/host/capture.h"

using namespace vgpu;

namespace {

// A graph that can be launched: a stream for each lane beyond the first.
struct Executable {
  Graph graph;
  int device;
  std::vector<Stream*> lanes;
};

Capture& capture_of(Stream& stream) {
  if (stream.capture == nullptr) throw CallError{cudaErrorIllegalState};
  return *stream.capture;
}

Stream& stream_to_capture(Runtime& r, cudaStream_t handle) {
  Stream& stream = r.stream_of(handle);
  if (stream.is_default) throw CallError{cudaErrorStreamCaptureUnsupported};
  return stream;
}

std::unique_ptr<Capture> end_capture(Runtime& r, Stream& stream) {
  std::unique_ptr<Capture> capture(&capture_of(stream));
  if (capture->origin() != &stream) {
    capture.release();
    throw CallError{cudaErrorStreamCaptureUnmatched};
  }
  for (Stream* s : capture->streams()) s->capture = nullptr;
  std::erase(r.captures, capture.get());
  return capture;
}

// Sends the nodes as if they were called now: in lane 0 after what is in the stream, in the others
// after the nodes they wait for.
void replay(Runtime& r, Executable& e, Stream& stream) {
  const Mark begin = stream.mark();
  std::vector<Mark> marks;
  for (const Graph::Node& node : e.graph.nodes) {
    Stream& lane = node.lane == 0 ? stream : *e.lanes[static_cast<size_t>(node.lane) - 1];
    if (node.op == Op::kWait) {
      for (const int before : node.after) {
        r.wait_in_stream(lane, before < 0 ? begin : marks[static_cast<size_t>(before)]);
      }
    } else {
      r.enqueue(lane, node.op, node.body);
    }
    marks.push_back(lane.mark());
  }
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  VGPU_API({
    Stream& stream = stream_to_capture(r, handle);
    if (stream.capture != nullptr) return cudaErrorIllegalState;
    stream.capture = new Capture(&stream, mode);
    r.captures.push_back(stream.capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  VGPU_API_ALWAYS({
    *graph = nullptr;
    const auto capture = end_capture(r, stream_to_capture(r, handle));
    if (capture->is_void()) return cudaErrorStreamCaptureInvalidated;
    if (!capture->is_joined()) return cudaErrorStreamCaptureUnjoined;
    *graph = reinterpret_cast<cudaGraph_t>(new Graph(capture->graph()));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  VGPU_API({
    const Stream& stream = r.stream_of(handle);
    *status = stream.capture == nullptr   ? cudaStreamCaptureStatusNone
              : stream.capture->is_void() ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long) {
  VGPU_API({
    auto e = std::make_unique<Executable>();
    e->graph = *reinterpret_cast<const Graph*>(graph);
    e->device = r.current_device();
    for (int lane = 1; lane < e->graph.lanes; ++lane) {
      e->lanes.push_back(r.streams.create(e->device, /*blocking=*/false));
    }
    *to = reinterpret_cast<cudaGraphExec_t>(e.release());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  VGPU_API({
    auto& e = *reinterpret_cast<Executable*>(executable);
    Stream& stream = r.stream_of(handle);
    if (stream.device != e.device) {
      r.mistake(cudaErrorInvalidValue,
                fmt::format("a graph of device {} launched on device {}", e.device, stream.device));
    }
    replay(r, e, stream);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  VGPU_API_ALWAYS({
    const std::unique_ptr<Executable> e(reinterpret_cast<Executable*>(executable));
    for (Stream* lane : e->lanes) r.streams.destroy(lane);
    return cudaSuccess;
  });
}

}  // extern "C"
