#include "core/memory/pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace weft {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kSegment = int64_t{64} << 30;  // of addresses, see Pool::Impl
constexpr int64_t kGrowth = int64_t{32} << 20;   // of memory

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// Free blocks are found by (size, address), merged with their neighbours by address. Memory grows
// at the end of one long segment of addresses, so that free blocks are used before it grows and no
// block is too large for the rest of a segment; a second segment begins only when the first is
// full.
struct Pool::Impl {
  struct Segment {
    char* at;
    int64_t addresses, used;  // used: bytes from the start that are backed by memory
  };
  explicit Impl(Backing& backing) : backing(backing) {}

  Backing& backing;
  std::mutex mutex;
  std::vector<Segment> segments;
  std::map<char*, int64_t> free_at;                // address -> size
  std::set<std::pair<int64_t, char*>> free_sizes;  // same blocks, smallest first
  int64_t reserved = 0;

  void insert(char* at, int64_t size) {
    auto next = free_at.lower_bound(at);
    if (next != free_at.end() && at + size == next->first) {
      size += next->second;
      free_sizes.erase({next->second, next->first});
      next = free_at.erase(next);
    }
    if (next != free_at.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == at) {
        at = before->first;
        size += before->second;
        free_sizes.erase({before->second, before->first});
        free_at.erase(before);
      }
    }
    free_at[at] = size;
    free_sizes.insert({size, at});
  }

  // Free bytes that end where the memory of the last segment ends.
  int64_t free_at_the_end() const {
    if (free_at.empty()) return 0;
    const auto& [at, size] = *free_at.rbegin();
    return at + size == segments.back().at + segments.back().used ? size : 0;
  }

  // At least `size` free bytes in one block.
  void grow(int64_t size) {
    int64_t more = segments.empty() ? size : size - free_at_the_end();
    more = round_up(more, kGrowth);
    if (segments.empty() || segments.back().used + more > segments.back().addresses) {
      more = round_up(size, kGrowth);
      const int64_t addresses = std::max(more, kSegment);
      segments.push_back({static_cast<char*>(backing.reserve(addresses)), addresses, 0});
    }
    Segment& last = segments.back();
    char* const fresh = last.at + last.used;
    backing.commit(fresh, more);
    last.used += more;
    reserved += more;
    insert(fresh, more);
  }

  char* take(int64_t size) {
    auto fit = free_sizes.lower_bound({size, nullptr});
    if (fit == free_sizes.end()) {
      grow(size);
      fit = free_sizes.lower_bound({size, nullptr});
    }
    const auto [found, at] = *fit;
    free_sizes.erase(fit);
    free_at.erase(at);
    if (found > size) {
      free_at[at + size] = found - size;
      free_sizes.insert({found - size, at + size});
    }
    return at;
  }
};

Pool::Pool(Ledger& ledger, Backing& backing)
    : ledger_(ledger), backing_(backing), impl_(std::make_unique<Impl>(backing)) {}

Pool::~Pool() {
  for (const auto& s : impl_->segments) backing_.release(s.at, s.addresses);
}

int64_t Pool::reserved() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->reserved;
}

std::shared_ptr<void> Pool::allocate(int64_t bytes, Label label) {
  WEFT_CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  const int64_t size = std::max(round_up(bytes, kAlign), kAlign);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // One heap block per tensor, so that the sanitizers see its borders and its lifetime.
  void* at = ::operator new (static_cast<size_t>(size), std::align_val_t{kAlign});
  ledger_.add(label, size);
  return {at, [this, size, label](void* p) {
            ::operator delete (p, std::align_val_t{kAlign});
            ledger_.add(label, -size);
          }};
#else
  char* at = nullptr;
  {
    const std::lock_guard lock(impl_->mutex);
    at = impl_->take(size);
  }
  ledger_.add(label, size);
  return {at, [this, size, label](void* p) {
            {
              const std::lock_guard lock(impl_->mutex);
              impl_->insert(static_cast<char*>(p), size);
            }
            ledger_.add(label, -size);
          }};
#endif
}

}  // namespace weft
