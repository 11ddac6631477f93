#include "tests/support/vgpu/host/capture.h"

#include <algorithm>

namespace vgpu {

Capture::Capture(Stream* origin, cudaStreamCaptureMode mode)
    : mode_(mode), thread_(std::this_thread::get_id()), lanes_{origin}, newest_{Graph::kBegin} {}

bool Capture::forbids_this_thread() const {
  if (mode_ == cudaStreamCaptureModeRelaxed) return false;
  return mode_ == cudaStreamCaptureModeGlobal || thread_ == std::this_thread::get_id();
}

int Capture::lane_of(const Stream& stream) const {
  return static_cast<int>(std::find(lanes_.begin(), lanes_.end(), &stream) - lanes_.begin());
}

void Capture::add(const Stream& stream, Op op, const Bytes& body) {
  const int lane = lane_of(stream);
  newest_[static_cast<size_t>(lane)] = static_cast<int>(graph_.nodes.size());
  graph_.nodes.push_back({lane, op, body, {}});
}

int Capture::newest(const Stream& stream) const {
  return newest_[static_cast<size_t>(lane_of(stream))];
}

void Capture::wait(Stream* stream, int node) {
  if (stream->capture != this) {
    stream->capture = this;
    lanes_.push_back(stream);
    newest_.push_back(Graph::kBegin);
    graph_.lanes = static_cast<int>(lanes_.size());
  }
  add(*stream, Op::kWait, {});
  graph_.nodes.back().after.push_back(node);
}

bool Capture::is_joined() const {
  const auto& nodes = graph_.nodes;
  std::vector<bool> reached(nodes.size());
  // Backwards: a node is reached if a later reached one waits for it, or is later in its lane.
  std::vector<bool> lane_reached(lanes_.size());
  lane_reached[0] = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (lane_reached[static_cast<size_t>(nodes[i].lane)]) reached[i] = true;
    if (!reached[i]) continue;
    lane_reached[static_cast<size_t>(nodes[i].lane)] = true;
    for (const int before : nodes[i].after) {
      if (before >= 0) reached[static_cast<size_t>(before)] = true;
    }
  }
  return std::all_of(reached.begin(), reached.end(), [](bool r) { return r; });
}

}  // namespace vgpu
