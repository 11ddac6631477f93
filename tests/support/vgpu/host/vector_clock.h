#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

// The newest command of each stream that is known to have come before some point.
class VectorClock {
 public:
  void join(const VectorClock& other) {
    if (entries_.size() < other.entries_.size()) entries_.resize(other.entries_.size());
    for (size_t i = 0; i < other.entries_.size(); ++i) {
      entries_[i] = std::max(entries_[i], other.entries_[i]);
    }
  }
  void join(const Ticket& t) {
    if (entries_.size() <= t.stream) entries_.resize(t.stream + 1);
    entries_[t.stream] = std::max(entries_[t.stream], t.number);
  }
  bool covers(const Ticket& t) const {
    return t.number == 0 || (t.stream < entries_.size() && entries_[t.stream] >= t.number);
  }
  std::span<const uint32_t> entries() const { return entries_; }

 private:
  std::vector<uint32_t> entries_;
};

// A point in a stream: its newest command, and what came before the point.
struct Mark {
  Ticket ticket;
  VectorClock clock;
};

}  // namespace vgpu
