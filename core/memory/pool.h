#pragma once

#include <cstdint>
#include <memory>

#include "core/memory/backing.h"
#include "core/memory/ledger.h"

namespace weft {

// Allocator for tensors: best fit over memory that grows at its end, with neighbours merged
// when freed. A step reuses the memory of the step before, so page faults stop after the
// first step. Blocks are aligned to 64 bytes. Thread-safe. Must outlive the blocks it
// returned.
class Pool {
 public:
  explicit Pool(Ledger& ledger, Backing& backing = host_backing());
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::shared_ptr<void> allocate(int64_t bytes, Label label);
  int64_t reserved() const;  // bytes taken from the backing
  Ledger& ledger() { return ledger_; }
  Backing& backing() { return backing_; }
  Device device() const { return backing_.device(); }

 private:
  struct Impl;
  Ledger& ledger_;
  Backing& backing_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
