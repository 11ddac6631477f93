#pragma once

#include <deque>

#include "parallel/sequence/span_scan.h"

namespace weft {

// States that other sequence ranks sent in a forward pass that backward computes again: the second
// pass reads them here, so that no state is exchanged twice. Entries are in the order in which the
// parts of a mixer need them, which is the same in both passes.
class RecomputeCache {
 public:
  struct Entry {
    State entering;  // of this rank's documents
    GatheredSummaries known;
  };

  bool replays() const { return replays_; }
  void replay() { replays_ = true; }

  // The entry of the next part: empty in the first pass, filled in the second.
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
