#include <sys/mman.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/vgpu/host/api.h"

namespace vgpu {

Bytes Runtime::allocation_body(const Allocation& a, const std::string& by) {
  AllocationBody body{a.at, a.bytes, a.number, {}};
  std::snprintf(body.by, sizeof body.by, "%s", by.empty() ? a.by.c_str() : by.c_str());
  Writer w;
  return w.put(body).bytes();
}

uint64_t Runtime::allocate(int range, uint64_t bytes) {
  check_can_wait("an allocation");
  device(current_device());
  if (faults.out_of_memory()) {
    std::fprintf(stderr, "vgpu: device %d: out of memory in %s (VGPU_FAULT)\n", current_device(),
                 caller().c_str());
    throw CallError{cudaErrorMemoryAllocation};
  }
  const auto at = heap(range).allocate(bytes, ++allocations_, caller());
  if (!at) throw CallError{cudaErrorMemoryAllocation};
  ++report.allocations;
  for (int d = 0; d < options.devices; ++d) {
    const bool sees_it = range < kMaxDevices ? d == range : started(d);
    if (sees_it) send(d, Op::kAllocate, allocation_body(*heap(range).find(*at)));
  }
  return *at;
}

const Allocation& Runtime::allocation_at(int range, uint64_t at) {
  const Allocation* a = heap(range).find(at);
  const bool going = std::any_of(releasing_.begin(), releasing_.end(),
                                 [&](const Releasing& r) { return r.at == at; });
  if (a == nullptr || going) {
    mistake(cudaErrorInvalidValue, fmt::format("{:#x} is not allocated: freed twice?", at));
  }
  if (a->at != at) {
    mistake(cudaErrorInvalidValue, fmt::format("{:#x} is inside an allocation, not its start", at));
  }
  return *a;
}

void Runtime::release(int range, uint64_t at) {
  const Bytes body = allocation_body(allocation_at(range, at), caller());
  for (int d = 0; d < options.devices; ++d) {
    const bool sees_it = range < kMaxDevices ? d == range : started(d);
    if (sees_it) send(d, Op::kFree, body);
  }
  give_back(range, at);
}

// The bytes read as zeros afterwards, and count no longer.
void Runtime::give_back(int range, uint64_t at) {
  if (range < kMaxDevices) {
    const uint64_t bytes = heap(range).find(at)->bytes;
    devices_[static_cast<size_t>(range)]->discard(at - range_base(range), bytes);
  }
  heap(range).release(at);
}

void Runtime::release_later(Stream& stream, uint64_t at) {
  const Bytes body = allocation_body(allocation_at(stream.device, at), caller());
  releasing_.push_back({enqueue(stream, Op::kFreeLater, body), at});
}

// Addresses serve again once the host knows that the device has let go of them.
void Runtime::finish_releases() {
  std::erase_if(releasing_, [&](const Releasing& r) {
    if (!host_clock_.covers(r.ticket)) return false;
    give_back(static_cast<int>(range_of(r.at)), r.at);
    return true;
  });
}

uint64_t Runtime::staging() {
  if (staging_ == 0) {
    staging_ = heap(kPinnedRange).allocate(kStagingBytes, 0, "vgpu").value();
    for (int d = 0; d < options.devices; ++d) {
      if (started(d)) send(d, Op::kAllocate, allocation_body(*heap(kPinnedRange).find(staging_)));
    }
  }
  return staging_;
}

// Managed memory belongs to the devices while any command is pending that the host has not
// waited for, as on GPUs before sm_60. Newer ones let both sides touch it, in no order that a
// program could rely on.
void Runtime::lend_managed() {
  Heap& managed = heap(kManagedRange);
  if (managed_is_lent_ || !options.check || managed.live().empty()) return;
  managed_is_lent_ = true;
  mprotect(reinterpret_cast<void*>(range_base(kManagedRange)),
           managed.high_water() - range_base(kManagedRange), PROT_NONE);
}

void Runtime::give_managed_back() {
  if (!managed_is_lent_) return;
  for (int d = 0; d < options.devices; ++d) {
    for (const Mark& mark : streams.marks_of_device(d)) {
      if (!host_clock_.covers(mark.ticket)) return;
    }
  }
  managed_is_lent_ = false;
  mprotect(reinterpret_cast<void*>(range_base(kManagedRange)), kHostCapacity,
           PROT_READ | PROT_WRITE);
}

}  // namespace vgpu
