#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "tests/support/simt/grid.h"

// The twin of a .cu file is the same file compiled by the host's compiler over tests/support/simt.
// Every launch<kernel>(...) in it registers the kernel, so that the device process can find it by
// its mangled name, knows how large its arguments are and can call it.
namespace vgpu {

struct TwinKernel {
  const void* function;
  void (*call)(void* arguments);  // by one thread; arguments are packed at `offsets`
  uint32_t count;
  const uint32_t* sizes;
  const uint32_t* offsets;
  uint32_t bytes;  // of all arguments
};

// Defined in the device process.
void add_twin_kernel(const TwinKernel& kernel);

template <auto kernel>
struct Twin;

template <class... P, void (*kernel)(P...)>
struct Twin<kernel> {
  static constexpr size_t kCount = sizeof...(P);
  static constexpr std::array<uint32_t, kCount + 1> kSizes{sizeof(P)..., 0};
  static constexpr std::array<uint32_t, kCount + 1> kOffsets = [] {
    const std::array<uint32_t, kCount + 1> alignments{alignof(P)..., 16};
    std::array<uint32_t, kCount + 1> offsets{};
    uint32_t at = 0;
    for (size_t i = 0; i <= kCount; ++i) {
      at = (at + alignments[i] - 1) / alignments[i] * alignments[i];
      offsets[i] = at;
      at += kSizes[i];
    }
    return offsets;
  }();

  // Not instrumented: the arguments are no memory of the device.
  SIMT_UNCHECKED static void call(void* arguments) {
    call_with(static_cast<const std::byte*>(arguments), std::make_index_sequence<kCount>());
  }
  template <size_t... i>
  SIMT_UNCHECKED static void call_with([[maybe_unused]] const std::byte* arguments,
                                       std::index_sequence<i...>) {
    kernel(*reinterpret_cast<const P*>(arguments + kOffsets[i])...);
  }
  static bool add() {
    add_twin_kernel({reinterpret_cast<const void*>(kernel), call, kCount, kSizes.data(),
                     kOffsets.data(), kOffsets[kCount]});
    return true;
  }
};

template <auto kernel>
inline const bool registered = Twin<kernel>::add();

}  // namespace vgpu
