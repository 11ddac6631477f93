#include "core/pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace weft {

void ReleasedPages::release(void* begin, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto to =
      (reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(bytes)) / page * page;
  if (from >= to) return;
  if (madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED) != 0) return;
  ledger_.add(label_, -static_cast<int64_t>(to - from));
  bytes_ += static_cast<int64_t>(to - from);
}

}  // namespace weft
