#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/vgpu/host/memory.h"
#include "tests/support/vgpu/host/vector_clock.h"

namespace vgpu {

// Pinned memory of pending copies: the host may not write bytes that a copy reads, nor touch bytes
// that it writes, until it has waited for the copy, even if the copy is done earlier. Whole pages
// are protected. Bytes that share a page with others are checked in another way: of a source a sum
// is taken, which the device compares; a destination is filled with a pattern first, so that early
// reads give nonsense.
class HostGuard {
 public:
  enum class Use { kRead, kWritten };

  explicit HostGuard(const Heap& heap) : heap_(heap) {}

  // A copy that will use these bytes as soon as it is sent. True: a sum of them must be sent along.
  bool begins(uint64_t at, uint64_t bytes, Use use);
  void sent(uint64_t at, uint64_t bytes, Use use, const Ticket& ticket, std::string what);
  // Releases memory of copies that the host has waited for.
  void host_knows(const VectorClock& clock);

  struct Copy {
    uint64_t at, bytes;
    Use use;
    Ticket ticket;
    std::string what;
  };
  // The copy that forbids an access to this address; null if none does. For a signal handler: no
  // allocation.
  const Copy* in_the_way(uint64_t address) const;

 private:
  struct Pages {
    uint64_t begin, end;
  };
  Pages whole_pages(uint64_t at, uint64_t bytes) const;
  bool overlaps(uint64_t at, uint64_t bytes) const;
  void protect_again(uint64_t at, uint64_t bytes) const;

  const Heap& heap_;
  std::vector<Copy> copies_;
};

}  // namespace vgpu
