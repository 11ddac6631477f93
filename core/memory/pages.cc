#include "core/memory/pages.h"

#include <unistd.h>

namespace weft {

void ReleasedPages::release(const Tensor& tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.view().data);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = (begin + page - 1) / page * page;
  const auto to = (begin + static_cast<uintptr_t>(tensor.bytes())) / page * page;
  if (from >= to) return;
  if (!backing_.discard(reinterpret_cast<void*>(from), static_cast<int64_t>(to - from))) return;
  ledger_.add(label_, -static_cast<int64_t>(to - from));
  bytes_ += static_cast<int64_t>(to - from);
}

}  // namespace weft
