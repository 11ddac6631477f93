#include "core/memory/ledger.h"

#include <algorithm>

namespace weft {

std::string_view name_of(Label label) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Label::kCount)> kNames = {
      "parameters", "master weights", "gradients", "moments",
      "packed",     "activations",    "scratch",   "data"};
  return kNames[static_cast<size_t>(label)];
}

void Ledger::add(Label label, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Entry* entry : {&entries_[static_cast<size_t>(label)], &total_}) {
    entry->live += bytes;
    entry->peak = std::max(entry->peak, entry->live);
  }
}

Ledger::Entry Ledger::of(Label label) const {
  const std::lock_guard lock(mutex_);
  return entries_[static_cast<size_t>(label)];
}

Ledger::Entry Ledger::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

void Ledger::restart_peaks() {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.peak = entry.live;
  total_.peak = total_.live;
}

}  // namespace weft
