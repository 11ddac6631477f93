#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

// y += x in the first stream, beside it z = x in the second, then y += z.
cudaGraphExec_t captured(const Setting& s, float* z) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal));
  CUDA(cudaEventRecord(s.event, s.first));
  CUDA(cudaStreamWaitEvent(s.second, s.event, 0));
  axpy(s.x, s.y, s.n, 1, s.first);
  CUDA(cudaMemcpyAsync(z, s.x, 4000, cudaMemcpyDeviceToDevice, s.second));
  CUDA(cudaEventRecord(s.event, s.second));
  CUDA(cudaStreamWaitEvent(s.first, s.event, 0));
  axpy(z, s.y, s.n, 1, s.first);
  CUDA(cudaStreamEndCapture(s.first, &graph));
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CUDA(cudaGraphDestroy(graph));
  return executable;
}

void replays() {
  const Setting s;
  float* z = on_device(s.n);
  const cudaGraphExec_t graph = captured(s, z);
  expect(s.read(s.y)[999] == 1, "a capture executes nothing");
  for (int i = 0; i < 4; ++i) CUDA(cudaGraphLaunch(graph, s.first));
  CUDA(cudaStreamSynchronize(s.first));
  expect(s.read(s.y)[999] == 1 + 8 * 999, "four launches");
  CUDA(cudaGraphExecDestroy(graph));
  CUDA(cudaFree(z));
  s.free();
}

// A launch of a graph is ordered like any other command.
void replay_conflicts() {
  const Setting s;
  float* z = on_device(s.n);
  const cudaGraphExec_t graph = captured(s, z);
  CUDA(cudaGraphLaunch(graph, s.first));
  CUDA(cudaMemsetAsync(z, 0, 4000, s.second));
  CUDA(cudaDeviceSynchronize());
}

void waits_in_capture() {
  const Setting s;
  CUDA(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal));
  CUDA(cudaStreamSynchronize(s.second));
}

void allocates_in_capture() {
  const Setting s;
  CUDA(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeThreadLocal));
  on_device(3);
}

void does_not_join() {
  const Setting s;
  cudaGraph_t graph;
  CUDA(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal));
  CUDA(cudaEventRecord(s.event, s.first));
  CUDA(cudaStreamWaitEvent(s.second, s.event, 0));
  axpy(s.x, s.y, s.n, 1, s.second);
  CUDA(cudaStreamEndCapture(s.first, &graph));
}

void waits_for_what_is_not_captured() {
  const Setting s;
  CUDA(cudaEventRecord(s.event, s.second));
  CUDA(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal));
  CUDA(cudaStreamWaitEvent(s.first, s.event, 0));
}

}  // namespace

std::vector<NamedCase> graph_cases() {
  return {{"replays", replays},
          {"replay_conflicts", replay_conflicts},
          {"waits_in_capture", waits_in_capture},
          {"allocates_in_capture", allocates_in_capture},
          {"does_not_join", does_not_join},
          {"waits_for_what_is_not_captured", waits_for_what_is_not_captured}};
}

}  // namespace vgpu::test
