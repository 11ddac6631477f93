#include "tests/support/vgpu/check/hooks.h"

#include "tests/support/vgpu/check/checker_access.h"

// g++ -fsanitize=thread calls these functions before every access to memory. The thread sanitizer's
// own library is not linked: twins run on one thread, and these are its replacement.
namespace vgpu {
namespace {

constinit Checker* active = nullptr;

enum class Alignment { kNatural, kAny };

template <unsigned bytes, simt::Access kind, Alignment alignment>
[[gnu::always_inline]] inline void check(const void* p, const void* pc) {
  if (active == nullptr) return;
  const Checker::Where where{reinterpret_cast<uint64_t>(p), bytes, kind, pc};
  if (alignment == Alignment::kNatural && where.at % bytes != 0) active->report_misaligned(where);
  active->kernel_access<kind>(where);
}

template <simt::Access kind>
void check_range(const void* p, uint64_t bytes, const void* pc) {
  if (active == nullptr || bytes == 0) return;
  active->kernel_access<kind>({reinterpret_cast<uint64_t>(p), bytes, kind, pc});
}

}  // namespace

void set_active_checker(Checker* checker) { active = checker; }

}  // namespace vgpu

using simt::Access;
using vgpu::Alignment;

extern "C" {

#define VGPU_HOOKS(bytes)                                                                    \
  void __tsan_read##bytes(void* p) {                                                         \
    vgpu::check<bytes, Access::kRead, Alignment::kNatural>(p, __builtin_return_address(0));  \
  }                                                                                          \
  void __tsan_write##bytes(void* p) {                                                        \
    vgpu::check<bytes, Access::kWrite, Alignment::kNatural>(p, __builtin_return_address(0)); \
  }                                                                                          \
  void __tsan_unaligned_read##bytes(void* p) {                                               \
    vgpu::check<bytes, Access::kRead, Alignment::kAny>(p, __builtin_return_address(0));      \
  }                                                                                          \
  void __tsan_unaligned_write##bytes(void* p) {                                              \
    vgpu::check<bytes, Access::kWrite, Alignment::kAny>(p, __builtin_return_address(0));     \
  }
VGPU_HOOKS(1)
VGPU_HOOKS(2)
VGPU_HOOKS(4)
VGPU_HOOKS(8)
VGPU_HOOKS(16)
#undef VGPU_HOOKS

void __tsan_read_range(void* p, unsigned long bytes) {
  vgpu::check_range<Access::kRead>(p, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* p, unsigned long bytes) {
  vgpu::check_range<Access::kWrite>(p, bytes, __builtin_return_address(0));
}

// Calls that mean nothing here.
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"
