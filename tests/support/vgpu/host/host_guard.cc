#include "tests/support/vgpu/host/host_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace vgpu {
namespace {

constexpr uint64_t kPage = 4096;

void protect(uint64_t begin, uint64_t end, int protection) {
  if (begin < end) mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}

}  // namespace

// The pages of a range in which nothing else is allocated.
HostGuard::Pages HostGuard::whole_pages(uint64_t at, uint64_t bytes) const {
  Pages pages{at / kPage * kPage, (at + bytes + kPage - 1) / kPage * kPage};
  if (heap_.any_in(pages.begin, at)) pages.begin += kPage;
  if (heap_.any_in(at + bytes, pages.end)) pages.end -= kPage;
  return pages;
}

bool HostGuard::overlaps(uint64_t at, uint64_t bytes) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& c) { return c.at < at + bytes && at < c.at + c.bytes; });
}

bool HostGuard::begins(uint64_t at, uint64_t bytes, Use use) {
  const Pages pages = whole_pages(at, bytes);
  if (pages.begin <= at && at + bytes <= pages.end) return false;
  if (overlaps(at, bytes)) return false;  // its bytes are another copy's until that is made
  if (use == Use::kRead) return true;
  const auto fill = [](uint64_t from, uint64_t to) {
    if (from < to) std::memset(reinterpret_cast<void*>(from), 0xff, to - from);
  };
  fill(at, std::min(pages.begin, at + bytes));
  fill(std::max(pages.end, at), at + bytes);
  return false;
}

void HostGuard::sent(uint64_t at, uint64_t bytes, Use use, const Ticket& ticket, std::string what) {
  copies_.push_back({at, bytes, use, ticket, std::move(what)});
  protect_again(at, bytes);
}

// As the copies that are left want it: no access beats read only.
void HostGuard::protect_again(uint64_t at, uint64_t bytes) const {
  const Pages all = whole_pages(at, bytes);
  protect(all.begin, all.end, PROT_READ | PROT_WRITE);
  for (const Use use : {Use::kRead, Use::kWritten}) {
    for (const Copy& c : copies_) {
      if (c.use != use) continue;
      const Pages pages = whole_pages(c.at, c.bytes);
      protect(std::max(all.begin, pages.begin), std::min(all.end, pages.end),
              use == Use::kRead ? PROT_READ : PROT_NONE);
    }
  }
}

void HostGuard::host_knows(const VectorClock& clock) {
  if (copies_.empty()) return;
  std::vector<Copy> over;
  std::erase_if(copies_, [&](const Copy& c) {
    if (!clock.covers(c.ticket)) return false;
    over.push_back(c);
    return true;
  });
  for (const Copy& c : over) protect_again(c.at, c.bytes);
}

const HostGuard::Copy* HostGuard::in_the_way(uint64_t address) const {
  for (const Copy& c : copies_) {
    if (c.at / kPage * kPage <= address && address < c.at + c.bytes + kPage) return &c;
  }
  return nullptr;
}

}  // namespace vgpu
