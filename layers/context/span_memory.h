#pragma once

#include <deque>

#include "parallel/sequence/span_scan.h"

namespace weft {

// What the other sequence ranks told this one in a forward pass that is computed again (recompute):
// the second pass finds it here, so that no state travels twice. Entries in the order in which the
// parts of a mixer ask, which is the same in both passes.
class SpanMemory {
 public:
  struct Entry {
    State entering;  // of this rank's documents
    KnownSpans known;
  };

  bool replays() const { return replays_; }
  void replay() { replays_ = true; }

  // The entry of the next part: to be filled in, or as it was.
  Entry& next() {
    if (!replays_) return entries_.emplace_back();
    WEFT_CHECK(at_ < entries_.size(), "a second forward pass asks for {} states, the first had {}",
               at_ + 1, entries_.size());
    return entries_[at_++];
  }

 private:
  std::deque<Entry> entries_;
  size_t at_ = 0;
  bool replays_ = false;
};

}  // namespace weft
