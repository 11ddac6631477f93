#include "tests/support/vgpu/nccl/shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <system_error>

namespace vgpu {
namespace {

// Files are sparse: offsets cost nothing.
constexpr uint64_t kRegionBytes = kMaxMessage;
constexpr uint64_t kRegionsAt = (sizeof(CommunicatorHead) + 4095) / 4096 * 4096;

uint64_t region_of(int rank) { return kRegionsAt + static_cast<uint64_t>(rank) * kRegionBytes; }
uint64_t channel_of(int from, int to) {
  return region_of(kMaxRanks) + static_cast<uint64_t>(from * kMaxRanks + to) * kRegionBytes;
}

void check(bool ok, const std::string& what) {
  if (!ok) throw std::system_error(errno, std::generic_category(), "vgpu: " + what);
}

template <class Move>
void move_all(uint64_t bytes, const char* what, Move move) {
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t moved = move(at);
    check(moved > 0, what);
    at += static_cast<uint64_t>(moved);
  }
}

}  // namespace

SharedCommunicator::SharedCommunicator(const std::string& path) : path_(path) {
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  check(file_ >= 0, path);
  check(ftruncate(file_, static_cast<off_t>(channel_of(kMaxRanks, 0))) == 0, "ftruncate");
  void* head =
      mmap(nullptr, sizeof(CommunicatorHead), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  check(head != MAP_FAILED, "mmap");
  head_ = static_cast<CommunicatorHead*>(head);
  head_->id = std::hash<std::string>{}(path) | 1;
}

SharedCommunicator::~SharedCommunicator() {
  munmap(head_, sizeof(CommunicatorHead));
  close(file_);
}

bool SharedCommunicator::complete(int size) const {
  return std::all_of(head_->members, head_->members + size,
                     [](const Member& m) { return m.here.load() != 0; });
}

void SharedCommunicator::put(int rank, const void* from, uint64_t bytes, uint64_t offset) const {
  move_all(bytes, "pwrite", [&](uint64_t at) {
    return pwrite(file_, static_cast<const char*>(from) + at, bytes - at,
                  static_cast<off_t>(region_of(rank) + offset + at));
  });
}
void SharedCommunicator::get(int rank, void* to, uint64_t bytes, uint64_t offset) const {
  move_all(bytes, "pread", [&](uint64_t at) {
    return pread(file_, static_cast<char*>(to) + at, bytes - at,
                 static_cast<off_t>(region_of(rank) + offset + at));
  });
}
void SharedCommunicator::put_message(int from, int to, const void* data, uint64_t bytes) const {
  move_all(bytes, "pwrite", [&](uint64_t at) {
    return pwrite(file_, static_cast<const char*>(data) + at, bytes - at,
                  static_cast<off_t>(channel_of(from, to) + at));
  });
}
void SharedCommunicator::get_message(int from, int to, void* data, uint64_t bytes) const {
  move_all(bytes, "pread", [&](uint64_t at) {
    return pread(file_, static_cast<char*>(data) + at, bytes - at,
                 static_cast<off_t>(channel_of(from, to) + at));
  });
}

std::string meeting_place() {
  const char* folder = std::getenv("VGPU_RUN");
  return folder == nullptr ? "/dev/shm" : folder;
}

std::string doorbell_path(pid_t host_process, int device) {
  return fmt::format("{}/vgpu-door.{}.{}", meeting_place(), host_process, device);
}

}  // namespace vgpu
