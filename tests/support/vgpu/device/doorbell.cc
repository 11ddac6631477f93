#include "tests/support/vgpu/device/doorbell.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/vgpu/nccl/shared.h"

namespace vgpu {

// Opened for both directions, so that it does not close when no other has it open.
Doorbell::Doorbell(int device) : path_(doorbell_path(getppid(), device)) {
  signal(SIGPIPE, SIG_IGN);
  mkfifo(path_.c_str(), 0600);
  own_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

Doorbell::~Doorbell() {
  unlink(path_.c_str());
  close(own_);
  for (const auto& [path, fd] : others_) {
    if (fd >= 0) close(fd);
  }
}

void Doorbell::answer() const {
  char rings[64];
  while (read(own_, rings, sizeof rings) == sizeof rings) {
  }
}

bool Doorbell::ring(const std::string& path) {
  const auto [found, is_new] = others_.try_emplace(path, -1);
  int& fd = found->second;
  if (fd < 0) fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  return write(fd, "!", 1) > 0 || errno == EAGAIN;  // a full one rings already
}

}  // namespace vgpu
