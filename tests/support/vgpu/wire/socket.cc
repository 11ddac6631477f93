#include "tests/support/vgpu/wire/socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace vgpu {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr size_t kMaxMessage = 1 << 20;

}  // namespace

std::pair<int, int> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  for (const int end : ends) {
    setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  }
  return {ends[0], ends[1]};
}

bool send_message(int socket, const Bytes& message) {
  for (;;) {
    if (send(socket, message.data(), message.size(), MSG_NOSIGNAL) >= 0) return true;
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return false;
    throw std::system_error(errno, std::generic_category(), "vgpu: send");
  }
}

Inbox::Inbox(int socket) : socket_(socket), buffer_(kMaxMessage) {}

std::optional<std::span<const std::byte>> Inbox::next(bool blocking) {
  for (;;) {
    const ssize_t got =
        recv(socket_, buffer_.data(), buffer_.size(), blocking ? 0 : int{MSG_DONTWAIT});
    if (got > 0) return std::span(buffer_).first(static_cast<size_t>(got));
    if (got == 0 || errno == ECONNRESET) {
      closed_ = true;
      return std::nullopt;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    throw std::system_error(errno, std::generic_category(), "vgpu: recv");
  }
}

bool peer_is_gone(int socket) {
  pollfd poll_this{socket, 0, 0};
  return poll(&poll_this, 1, 0) > 0 && (poll_this.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace vgpu
