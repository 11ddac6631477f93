#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include "tests/support/vgpu/host/copies.h"

using namespace vgpu;

namespace {

uint64_t value_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

cudaError_t allocate(Runtime& r, int range, void** to, size_t bytes) {
  *to = nullptr;
  if (bytes == 0) return cudaSuccess;
  *to = reinterpret_cast<void*>(r.allocate(range, bytes));
  return cudaSuccess;
}

// Freeing waits for all work of the device that can see the memory.
cudaError_t release(Runtime& r, Lock& lock, void* p, bool of_host) {
  if (p == nullptr) return cudaSuccess;
  r.check_can_wait("freeing memory");
  const Memory memory = memory_of(p);
  if (memory == Memory::kPageable || (memory == Memory::kPinned) != of_host) {
    r.mistake(cudaErrorInvalidValue, fmt::format("{} is no memory of this kind", p));
  }
  const auto range = static_cast<int>(range_of(p));
  for (int d = 0; d < r.options.devices; ++d) {
    const bool sees_it = range < kMaxDevices ? d == range : r.started(d);
    if (sees_it) r.wait_for_device(lock, d);
  }
  r.release(range, value_of(p));
  return cudaSuccess;
}

cudaError_t set(Runtime& r, void* to, size_t pitch, int value, size_t bytes, size_t rows,
                cudaStream_t handle) {
  Stream& stream = r.stream_of(handle);
  if (bytes * rows == 0) return cudaSuccess;
  if (memory_of(to) == Memory::kPageable) {
    r.mistake(cudaErrorInvalidValue, fmt::format("cudaMemset of host memory ({})", to));
  }
  Writer w;
  w.put(SetBody{value_of(to), rows, bytes, pitch, static_cast<uint32_t>(value)});
  r.enqueue(stream, Op::kSet, w.bytes());
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** to, size_t bytes) {
  VGPU_API({ return allocate(r, r.current_device(), to, bytes); });
}
cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) {
  VGPU_API({ return allocate(r, kPinnedRange, to, bytes); });
}
cudaError_t cudaMallocHost(void** to, size_t bytes) {
  VGPU_API({ return allocate(r, kPinnedRange, to, bytes); });
}
cudaError_t cudaMallocManaged(void** to, size_t bytes, unsigned) {
  VGPU_API({ return allocate(r, kManagedRange, to, bytes); });
}
cudaError_t cudaFree(void* p) {
  VGPU_API({ return release(r, lock, p, /*of_host=*/false); });
}
cudaError_t cudaFreeHost(void* p) {
  VGPU_API({ return release(r, lock, p, /*of_host=*/true); });
}

// In stream order the memory is there at once; it goes when the stream has come to that point.
// Its addresses serve again only once the program has waited for it.
cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t stream) {
  VGPU_API({
    r.stream_of(stream);
    return allocate(r, r.current_device(), to, bytes);
  });
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
  VGPU_API({
    if (p == nullptr) return cudaSuccess;
    r.check_can_wait("freeing memory");
    r.release_later(r.stream_of(handle), value_of(p));
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  VGPU_API({
    r.device(r.current_device());
    const Heap& heap = r.heap(r.current_device());
    *free = heap.capacity() - heap.used();
    *total = heap.capacity();
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  VGPU_API({
    *a = {};
    const uint64_t range = range_of(p);
    const bool known = range < kRanges &&
                       (range >= kMaxDevices || r.started(static_cast<int>(range))) &&
                       r.heap(static_cast<int>(range)).find(value_of(p)) != nullptr;
    if (!known) return cudaSuccess;  // cudaMemoryTypeUnregistered
    const Memory memory = memory_of(p);
    a->type = memory == Memory::kDevice   ? cudaMemoryTypeDevice
              : memory == Memory::kPinned ? cudaMemoryTypeHost
                                          : cudaMemoryTypeManaged;
    a->device = memory == Memory::kDevice ? static_cast<int>(range) : r.current_device();
    a->devicePointer = const_cast<void*>(p);
    a->hostPointer = memory == Memory::kDevice ? nullptr : const_cast<void*>(p);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  VGPU_API({
    copy_now(r, lock, Copy::plain(to, from, bytes, kind));
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  VGPU_API({
    copy_async(r, Copy::plain(to, from, bytes, kind), stream);
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t bytes, size_t rows, cudaMemcpyKind kind) {
  VGPU_API({
    copy_now(r, lock, {to, from, rows, bytes, to_pitch, from_pitch, kind});
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t bytes, size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  VGPU_API({
    copy_async(r, {to, from, rows, bytes, to_pitch, from_pitch, kind}, stream);
    return cudaSuccess;
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  VGPU_API({ return set(r, to, bytes, value, bytes, 1, nullptr); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  VGPU_API({ return set(r, to, bytes, value, bytes, 1, stream); });
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t bytes, size_t rows,
                              cudaStream_t stream) {
  VGPU_API({ return set(r, to, pitch, value, bytes, rows, stream); });
}

// Variables in device memory have no twin.
cudaError_t cudaGetSymbolAddress(void**, const void*) { return cudaErrorInvalidSymbol; }
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaErrorInvalidSymbol;
}
// Memory of one virtual GPU is seen by no other process.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return cudaErrorNotSupported;
}
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaErrorNotSupported; }

}  // extern "C"
