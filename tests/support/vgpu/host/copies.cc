#include "tests/support/vgpu/host/copies.h"

#include <fmt/format.h>

#include <cstring>

namespace vgpu {
namespace {

uint64_t value_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

const char* name_of(Memory memory) {
  switch (memory) {
    case Memory::kPageable: return "pageable host memory";
    case Memory::kPinned: return "pinned host memory";
    case Memory::kManaged: return "managed memory";
    case Memory::kDevice: return "device memory";
  }
  return "";
}

void check_direction(Runtime& r, const Copy& c) {
  const auto fits = [](Memory memory, bool device) {
    return memory == Memory::kManaged || (memory == Memory::kDevice) == device;
  };
  const Memory from = memory_of(c.from), to = memory_of(c.to);
  const bool from_device = c.kind == cudaMemcpyDeviceToHost || c.kind == cudaMemcpyDeviceToDevice;
  const bool to_device = c.kind == cudaMemcpyHostToDevice || c.kind == cudaMemcpyDeviceToDevice;
  if (c.kind == cudaMemcpyDefault || (fits(from, from_device) && fits(to, to_device))) return;
  r.mistake(cudaErrorInvalidMemcpyDirection,
            fmt::format("a copy whose kind is not what it does: from {} to {}", name_of(from),
                        name_of(to)));
}

// Between devices there is no copy: peer access is not offered.
int device_of_copy(Runtime& r, const Copy& c) {
  const uint64_t from = range_of(c.from), to = range_of(c.to);
  if (from < kMaxDevices && to < kMaxDevices && from != to) {
    r.mistake(cudaErrorInvalidValue, "a copy between devices; the virtual GPU has no peer access");
  }
  return r.current_device();
}

Bytes body_of(const Copy& c) {
  Writer w;
  w.put(CopyBody{value_of(c.to), value_of(c.from), c.rows, c.row_bytes, c.to_pitch, c.from_pitch, 0,
                 0});
  return w.bytes();
}

// A copy of bytes in a row, one side of which is pinned: the host is kept off it.
void send_guarded(Runtime& r, Stream& stream, const Copy& c, HostGuard::Use use) {
  const uint64_t at = value_of(use == HostGuard::Use::kRead ? c.from : c.to);
  CopyBody body{value_of(c.to), value_of(c.from), 1, c.row_bytes, c.row_bytes, c.row_bytes, 0, 0};
  if (r.guard().begins(at, c.row_bytes, use)) {
    body.has_checksum = 1;
    body.checksum = checksum_of(c.from, c.row_bytes);
  }
  Writer w;
  const Ticket ticket = r.enqueue(stream, Op::kCopy, w.put(body).bytes());
  r.guard().sent(at, c.row_bytes, use, ticket,
                 fmt::format("copy of {} bytes from {} to {}", c.row_bytes,
                             name_of(memory_of(c.from)), name_of(memory_of(c.to))));
}

void send(Runtime& r, Stream& stream, const Copy& c) {
  const bool plain = c.rows == 1 && r.options.check && stream.capture == nullptr;
  if (plain && memory_of(c.from) == Memory::kPinned) {
    send_guarded(r, stream, c, HostGuard::Use::kRead);
  } else if (plain && memory_of(c.to) == Memory::kPinned) {
    send_guarded(r, stream, c, HostGuard::Use::kWritten);
  } else {
    r.enqueue(stream, Op::kCopy, body_of(c));
  }
}

// Row by row through the staging memory, each part waited for.
void copy_staged(Runtime& r, Lock& lock, Stream& stream, const Copy& c) {
  auto* staging = reinterpret_cast<char*>(r.staging());
  const bool from_host = memory_of(c.from) == Memory::kPageable;
  for (size_t row = 0; row < c.rows; ++row) {
    auto* to = static_cast<char*>(c.to) + row * c.to_pitch;
    const auto* from = static_cast<const char*>(c.from) + row * c.from_pitch;
    for (size_t at = 0; at < c.row_bytes; at += Runtime::kStagingBytes) {
      const size_t bytes = std::min<size_t>(c.row_bytes - at, Runtime::kStagingBytes);
      if (from_host) std::memcpy(staging, from + at, bytes);
      const auto kind = cudaMemcpyDefault;
      r.enqueue(stream, Op::kCopy,
                body_of(from_host ? Copy::plain(to + at, staging, bytes, kind)
                                  : Copy::plain(staging, from + at, bytes, kind)));
      r.host_wait(lock, stream.device, stream.mark());
      if (!from_host) std::memcpy(to + at, staging, bytes);
    }
  }
}

}  // namespace

Memory memory_of(const void* address) {
  const uint64_t range = range_of(address);
  if (range < kMaxDevices) return Memory::kDevice;
  if (range == kPinnedRange) return Memory::kPinned;
  return range == kManagedRange ? Memory::kManaged : Memory::kPageable;
}

void copy_async(Runtime& r, const Copy& c, CUstream_st* handle) {
  Stream& stream = r.stream_of(handle);
  if (c.rows * c.row_bytes == 0) return;
  check_direction(r, c);
  device_of_copy(r, c);
  for (const void* side : {c.from, static_cast<const void*>(c.to)}) {
    if (memory_of(side) != Memory::kPageable) continue;
    r.mistake(
        cudaErrorInvalidValue,
        fmt::format("an asynchronous copy of {} bytes with pageable host memory ({}): it would "
                    "not be asynchronous; use memory of cudaHostAlloc, or cudaMemcpy",
                    c.rows * c.row_bytes, side));
  }
  send(r, stream, c);
}

void copy_now(Runtime& r, Lock& lock, const Copy& c) {
  r.check_can_wait("a copy that waits");
  Stream& stream = r.stream_of(nullptr);
  if (c.rows * c.row_bytes == 0) return;
  check_direction(r, c);
  device_of_copy(r, c);
  ++r.report.host_waits[current_call.name];
  const bool pageable_from = memory_of(c.from) == Memory::kPageable;
  const bool pageable_to = memory_of(c.to) == Memory::kPageable;
  if (pageable_from && pageable_to) {
    for (size_t row = 0; row < c.rows; ++row) {
      std::memmove(static_cast<char*>(c.to) + row * c.to_pitch,
                   static_cast<const char*>(c.from) + row * c.from_pitch, c.row_bytes);
    }
  } else if (pageable_from || pageable_to) {
    copy_staged(r, lock, stream, c);
  } else {
    send(r, stream, c);
    r.host_wait(lock, stream.device, stream.mark());
  }
}

}  // namespace vgpu
