#include "core/threads/errands.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Polling costs about a microsecond if nothing has arrived; in this interval a fast network
// delivers about as much as the system buffers.
constexpr auto kPause = std::chrono::microseconds(100);

struct Errands {
  struct Entry {
    Errand::Poke poke;
    int count;
  };
  std::vector<Entry> entries;
  Clock::time_point next = {};
};

// Per thread: with MPI only the thread that started an operation may progress it.
Errands& errands() {
  thread_local Errands mine;
  return mine;
}

}  // namespace

Errand::Errand(Poke poke) : poke_(poke) {
  auto& entries = errands().entries;
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Errands::Entry& e) { return e.poke == poke; });
  if (found == entries.end())
    entries.push_back({poke, 1});
  else
    ++found->count;
}

Errand::~Errand() {
  auto& entries = errands().entries;
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Errands::Entry& e) { return e.poke == poke_; });
  if (found != entries.end() && --found->count == 0) entries.erase(found);
}

void run_errands() {
  Errands& mine = errands();
  if (mine.entries.empty()) return;
  const auto now = Clock::now();
  if (now < mine.next) return;
  mine.next = now + kPause;
  for (const Errands::Entry& entry : mine.entries) entry.poke();
}

}  // namespace weft
