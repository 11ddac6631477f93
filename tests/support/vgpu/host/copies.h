#pragma once

#include <driver_types.h>

#include "tests/support/vgpu/host/api.h"

namespace vgpu {

// Kind of memory at an address.
enum class Memory { kPageable, kPinned, kManaged, kDevice };
Memory memory_of(const void* address);

// `rows` of `row_bytes` each.
struct Copy {
  void* to;
  const void* from;
  size_t rows, row_bytes, to_pitch, from_pitch;
  cudaMemcpyKind kind;

  static Copy plain(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return {to, from, 1, bytes, bytes, bytes, kind};
  }
};
void copy_async(Runtime& r, const Copy& copy, CUstream_st* stream);
// In the default stream; returns when it is done. Pageable memory goes by way of pinned memory.
void copy_now(Runtime& r, Lock& lock, const Copy& copy);

}  // namespace vgpu
