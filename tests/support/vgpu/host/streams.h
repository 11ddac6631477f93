#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/vgpu/host/vector_clock.h"

struct CUstream_st;
struct CUevent_st;

namespace vgpu {

class Capture;

struct Stream {
  uint32_t slot;  // its number in tickets and clocks, over all devices
  int device;
  bool blocking;        // ordered with the default stream of its device
  bool is_default;      // the stream 0
  uint32_t newest = 0;  // command
  VectorClock clock;    // everything before its next command
  Capture* capture = nullptr;
  uint32_t default_seen = 0;  // newest command of the default stream that it was ordered behind

  Mark mark() const { return {{slot, newest}, clock}; }
};

struct Event {
  int device;
  bool timing;
  bool recorded = false;
  Mark mark;
  uint32_t stamp_slot = 0;  // where the device writes the time, if it is a timing event
  // Recorded into a capture: a node of it instead of a mark.
  Capture* capture = nullptr;
  int node = -1;
};

// The streams and events of this process. Handles are their addresses.
class Streams {
 public:
  Stream* create(int device, bool blocking);
  void destroy(Stream* stream);
  // The stream of a handle on a device, or null. Handles 0, 1 (legacy) and 2 (per thread) are the
  // default stream.
  Stream* find(CUstream_st* handle, int device);
  Stream* default_of(int device);
  CUstream_st* handle_of(Stream* stream) { return reinterpret_cast<CUstream_st*>(stream); }
  // All streams of a device, with the default one if it was used.
  std::vector<Stream*> of_device(int device) const;
  // Their newest commands, and those of streams that were destroyed before these were waited for.
  std::vector<Mark> marks_of_device(int device) const;
  void host_knows(const VectorClock& clock);
  size_t made_by_program() const { return streams_.size() - defaults_used_; }

  Event* create_event(int device, bool timing);
  Event* find_event(CUevent_st* handle);
  void destroy_event(Event* event);
  size_t events() const { return events_.size(); }

 private:
  struct ByAddress {
    using is_transparent = void;
    template <class T>
    static const void* address(const T* p) {
      return p;
    }
    template <class T>
    static const void* address(const std::unique_ptr<T>& p) {
      return p.get();
    }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return address(a) < address(b);
    }
  };
  Stream* add(int device, bool blocking, bool is_default);

  std::set<std::unique_ptr<Stream>, ByAddress> streams_;
  std::set<std::unique_ptr<Event>, ByAddress> events_;
  std::vector<Stream*> defaults_;
  size_t defaults_used_ = 0;
  struct Ended {
    int device;
    Mark mark;
  };
  std::vector<Ended> ended_;  // streams whose commands may be pending
  // Slots of destroyed streams whose commands the host has waited for: what a new stream in the
  // slot does comes after them.
  std::vector<Ticket> free_slots_;
  uint32_t next_slot_ = 0, next_stamp_ = 0;
};

}  // namespace vgpu
