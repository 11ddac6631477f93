#pragma once

#include <cstdint>

#include "core/memory/tensor.h"

namespace weft {

// Ranges of arenas whose content is not needed any more: their pages are returned to the system,
// the addresses stay valid (and read as zeros). The ledger counts them while this object exists.
class ReleasedPages {
 public:
  ReleasedPages(Ledger& ledger, Label label, Backing& backing)
      : ledger_(ledger), label_(label), backing_(backing) {}
  ~ReleasedPages() { ledger_.add(label_, bytes_); }
  ReleasedPages(const ReleasedPages&) = delete;
  ReleasedPages& operator=(const ReleasedPages&) = delete;

  void release(const Tensor& tensor);  // whole pages of it
  int64_t bytes() const { return bytes_; }

 private:
  Ledger& ledger_;
  Label label_;
  Backing& backing_;
  int64_t bytes_ = 0;
};

}  // namespace weft
