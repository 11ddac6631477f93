#pragma once

#include <optional>
#include <utility>

#include "tests/support/vgpu/wire/message.h"

// Whole messages between a host process and a device process. Either side sees the other's end of
// the connection close, whatever way it ended.
namespace vgpu {

// Blocks while the other side has much to read. False: it is gone.
bool send_message(int socket, const Bytes& message);

class Inbox {
 public:
  explicit Inbox(int socket);
  // The next message, valid until the next call; nothing where none has come (or, blocking, where
  // the other side is gone).
  std::optional<std::span<const std::byte>> next(bool blocking);
  bool closed() const { return closed_; }

 private:
  int socket_;
  Bytes buffer_;
  bool closed_ = false;
};

std::pair<int, int> socket_pair();  // close-on-exec
bool peer_is_gone(int socket);

}  // namespace vgpu
