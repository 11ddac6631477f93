#include "tests/support/vgpu/wire/board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <system_error>

namespace vgpu {
namespace {

void check(bool ok, const char* call) {
  if (!ok) throw std::system_error(errno, std::generic_category(), call);
}

long futex(const void* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

}  // namespace

SharedMemory::SharedMemory(const char* name, uint64_t bytes, uint64_t address, Access access)
    : fd_(memfd_create(name, MFD_CLOEXEC)), bytes_(bytes) {
  check(fd_ >= 0, "memfd_create");
  check(ftruncate(fd_, static_cast<off_t>(bytes)) == 0, "ftruncate");
  map(address, access);
}

SharedMemory::SharedMemory(int fd, uint64_t bytes, uint64_t address, Access access)
    : fd_(fd), bytes_(bytes) {
  map(address, access);
}

void SharedMemory::map(uint64_t address, Access access) {
  const int protection = access == Access::kNone ? PROT_NONE : PROT_READ | PROT_WRITE;
  const int fixed = address == 0 ? 0 : MAP_FIXED_NOREPLACE;
  data_ = mmap(reinterpret_cast<void*>(address), bytes_, protection,
               MAP_SHARED | MAP_NORESERVE | fixed, fd_, 0);
  check(data_ != MAP_FAILED, "mmap");
}

void SharedMemory::discard(uint64_t offset, uint64_t bytes) {
  check(fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) == 0,
        "fallocate");
}

void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, int64_t microseconds) {
  const timespec timeout{microseconds / 1'000'000, microseconds % 1'000'000 * 1000};
  futex(&word, FUTEX_WAIT, seen, &timeout);
}

void wake_waiters(std::atomic<uint32_t>& word) { futex(&word, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace vgpu
