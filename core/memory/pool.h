#pragma once

#include <cstdint>
#include <memory>

#include "core/memory/backing.h"
#include "core/memory/ledger.h"

namespace weft {

// Memory that is handed out and taken back all the time: best fit over memory that grows at its
// end, neighbours merged when freed, so that a step runs in the memory of the step before and page
// faults stop after the first one. Blocks are aligned to 64 bytes. Thread-safe. Must outlive what
// it handed out.
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
