#pragma once

#include <cstdint>

#include "core/memory.h"

namespace weft {

// Ranges inside arenas whose content nobody needs any more: the system takes their pages back, the
// addresses stay (and read as zeros). Counted with the ledger as long as this object lives.
class ReleasedPages {
 public:
  ReleasedPages(Ledger& ledger, Label label) : ledger_(ledger), label_(label) {}
  ~ReleasedPages() { ledger_.add(label_, bytes_); }
  ReleasedPages(const ReleasedPages&) = delete;
  ReleasedPages& operator=(const ReleasedPages&) = delete;

  void release(void* begin, int64_t bytes);  // whole pages of it
  int64_t bytes() const { return bytes_; }

 private:
  Ledger& ledger_;
  Label label_;
  int64_t bytes_ = 0;
};

}  // namespace weft
