#include "parallel/watchdog/node_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr int kAnswerWithin = 1000;  // milliseconds

sockaddr* plain(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// A connection under way to "10.0.0.1:40123"; none when it cannot even begin.
FileDescriptor begin_connection(const std::string& place) {
  const size_t colon = place.find(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, place.substr(0, colon).c_str(), &to.sin_addr) != 1) {
    return FileDescriptor();
  }
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(place.c_str() + colon + 1)));
  FileDescriptor line(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (line.get() < 0) return line;
  if (connect(line.get(), plain(to), sizeof to) != 0 && errno != EINPROGRESS)
    return FileDescriptor();
  return line;
}

// A refusal is an answer too: there is a node.
bool answered(const FileDescriptor& line) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(line.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
         (error == 0 || error == ECONNREFUSED);
}

}  // namespace

NodePort::NodePort() : port_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  if (port_.get() < 0 || bind(port_.get(), plain(any), sizeof any) != 0 ||
      listen(port_.get(), 16) != 0 || getsockname(port_.get(), plain(any), &size) != 0) {
    return;
  }
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return;
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
    if ((a->ifa_flags & IFF_LOOPBACK) != 0 || (a->ifa_flags & IFF_UP) == 0) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(a->ifa_addr);
    addresses_ += fmt::format("{}{}:{}", addresses_.empty() ? "" : " ", text_of(address->sin_addr),
                              ntohs(any.sin_port));
  }
  freeifaddrs(all);
}

bool answers(const std::string& addresses) {
  std::istringstream in(addresses);
  std::vector<FileDescriptor> lines;
  bool any = false;
  for (std::string place; in >> place; any = true) {
    FileDescriptor line = begin_connection(place);
    if (line.get() >= 0) lines.push_back(std::move(line));
  }
  if (!any) return true;
  std::vector<pollfd> waiting;
  for (const FileDescriptor& line : lines) waiting.push_back({line.get(), POLLOUT, 0});
  for (size_t left = waiting.size(); left > 0;) {
    if (poll(waiting.data(), waiting.size(), kAnswerWithin) <= 0) return false;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      if (answered(lines[i])) return true;
      waiting[i].fd = -1;  // poll passes over it
      --left;
    }
  }
  return false;
}

}  // namespace weft
