#pragma once

#include <driver_types.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/vgpu/host/streams.h"
#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

// Commands that were captured instead of sent. A lane is a stream of the capture; lane 0 is the
// one that a launch of the graph names.
struct Graph {
  struct Node {
    int lane;
    Op op;
    Bytes body;
    std::vector<int> after;  // nodes of other lanes; kBegin: the launch itself
  };
  static constexpr int kBegin = -1;
  std::vector<Node> nodes;
  int lanes = 1;
};

// A capture that has begun.
class Capture {
 public:
  Capture(Stream* origin, cudaStreamCaptureMode mode);

  Stream* origin() const { return lanes_.front(); }
  const std::vector<Stream*>& streams() const { return lanes_; }
  // True if calls that a capture forbids are forbidden to this thread.
  bool forbids_this_thread() const;

  void add(const Stream& stream, Op op, const Bytes& body);
  int newest(const Stream& stream) const;  // node, for events
  void wait(Stream* stream, int node);     // joins the capture if it is not in it
  void make_void() { is_void_ = true; }    // a forbidden call was made
  bool is_void() const { return is_void_; }
  // True if every stream of the capture has been joined back into the first one.
  bool is_joined() const;
  const Graph& graph() const { return graph_; }

 private:
  int lane_of(const Stream& stream) const;

  cudaStreamCaptureMode mode_;
  std::thread::id thread_;
  std::vector<Stream*> lanes_;
  std::vector<int> newest_;
  Graph graph_;
  bool is_void_ = false;
};

}  // namespace vgpu
