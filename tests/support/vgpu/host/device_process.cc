#include "tests/support/vgpu/host/device_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "tests/support/vgpu/check/where.h"
#include "tests/support/vgpu/wire/socket.h"

extern char** environ;

namespace vgpu {

using Access = SharedMemory::Access;

HostMemory::HostMemory()
    : pinned("vgpu pinned memory", kHostCapacity, range_base(kPinnedRange), Access::kReadWrite),
      managed("vgpu managed memory", kHostCapacity, range_base(kManagedRange), Access::kReadWrite),
      board_memory("vgpu board", sizeof(Board), 0, Access::kReadWrite) {}

DeviceProcess::DeviceProcess(int index, const Options& options, const HostMemory& host)
    : memory_("vgpu device memory", address_space(options.memory_bytes), range_base(index),
              Access::kNone) {
  const auto [ours, theirs] = socket_pair();
  socket_ = ours;
  spawn(index, options, host, theirs);
  close(theirs);
  greet(options);
}

void DeviceProcess::spawn(int index, const Options& options, const HostMemory& host, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // By way of higher numbers: a descriptor to be passed may have the number of another.
  const std::array<std::pair<int, int>, 5> passed{{{socket, kSocketFd},
                                                   {memory_.fd(), kDeviceMemoryFd},
                                                   {host.pinned.fd(), kPinnedFd},
                                                   {host.managed.fd(), kManagedFd},
                                                   {host.board_memory.fd(), kBoardFd}}};
  std::array<int, 5> high{};
  for (size_t i = 0; i < passed.size(); ++i) {
    high[i] = fcntl(passed[i].first, F_DUPFD_CLOEXEC, 64);
    posix_spawn_file_actions_adddup2(&files, high[i], passed[i].second);
  }
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, kFirstFreeFd);

  // A group of its own: a GPU gets no signals from a terminal.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> words{options.device_program,
                                 std::to_string(index),
                                 std::to_string(address_space(options.memory_bytes)),
                                 std::to_string(options.order),
                                 options.check ? "1" : "0",
                                 std::to_string(options.longest_delay_us)};
  words.insert(words.end(), options.twins.begin(), options.twins.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error =
      posix_spawn(&pid_, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  for (const int fd : high) close(fd);
  if (error != 0) {
    refuse(fmt::format("{} does not start: {}", options.device_program, std::strerror(error)));
  }
}

void DeviceProcess::greet(const Options& options) {
  Inbox inbox(socket_);
  const auto next = [&] {
    const auto message = inbox.next(/*blocking=*/true);
    if (!message) refuse(fmt::format("{} ended while it started", options.device_program));
    return Reader(*message);
  };
  Reader first = next();
  const std::string why_not = first.take_text();
  if (!why_not.empty()) refuse(why_not);
  const auto count = first.take<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    Reader r = next();
    const std::string name = r.take_text();
    KernelParameters kernel{i, r.take<uint32_t>(), {}, {}};
    kernel.sizes.resize(r.take<uint32_t>());
    kernel.offsets.resize(kernel.sizes.size());
    for (uint32_t& size : kernel.sizes) size = r.take<uint32_t>();
    for (uint32_t& offset : kernel.offsets) offset = r.take<uint32_t>();
    readable_names_.push_back(kernel_name(name));
    kernels_.emplace(name, std::move(kernel));
  }
}

void DeviceProcess::send(const Bytes& message) const { send_message(socket_, message); }

bool DeviceProcess::gone() const { return peer_is_gone(socket_); }

const KernelParameters* DeviceProcess::find_kernel(const std::string& mangled) const {
  const auto found = kernels_.find(mangled);
  return found == kernels_.end() ? nullptr : &found->second;
}

}  // namespace vgpu
