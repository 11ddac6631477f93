#include <poll.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/vgpu/device/device.h"
#include "tests/support/vgpu/device/faults.h"
#include "tests/support/vgpu/wire/socket.h"

// vgpu_device INDEX CAPACITY ORDER CHECK DELAY TWIN...: a virtual GPU, started by the stand-in of
// the CUDA runtime, which hands it memory and a socket at the descriptors of wire/layout.h.
namespace {

using namespace vgpu;

uint64_t number(const char* text) {
  uint64_t x = 0;
  std::from_chars(text, text + std::strlen(text), x);
  return x;
}

DeviceOptions options_from(int count, char** words) {
  DeviceOptions o;
  o.index = static_cast<int>(number(words[1]));
  o.capacity = number(words[2]);
  o.order = static_cast<uint32_t>(number(words[3]));
  o.thorough = number(words[4]) != 0;
  o.longest_delay_us = static_cast<int64_t>(number(words[5]));
  o.twins.assign(words + 6, words + count);
  return o;
}

// The working thread may be in a kernel for long, or for ever, when the host ends.
void end_with_the_host() {
  std::thread([] {
    pollfd host{kSocketFd, 0, 0};
    while (poll(&host, 1, -1) < 0 || (host.revents & (POLLHUP | POLLERR)) == 0) {
    }
    _exit(0);
  }).detach();
}

// The first message holds an error text, or an empty one; a message for each kernel follows.
void greet(const std::vector<Kernel>& kernels, const std::string& why_not) {
  Writer first;
  send_message(kSocketFd,
               first.put_text(why_not).put(static_cast<uint32_t>(kernels.size())).bytes());
  for (const Kernel& kernel : kernels) {
    Writer w;
    w.put_text(kernel.name).put(kernel.twin.bytes).put(kernel.twin.count);
    w.put_bytes(kernel.twin.sizes, kernel.twin.count * sizeof(uint32_t));
    w.put_bytes(kernel.twin.offsets, kernel.twin.count * sizeof(uint32_t));
    send_message(kSocketFd, w.bytes());
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 6) {
    std::fprintf(stderr, "vgpu_device is started by the stand-in of the CUDA runtime\n");
    return 2;
  }
  using Access = SharedMemory::Access;
  std::unique_ptr<Device> device;
  try {
    const DeviceOptions options = options_from(count, words);
    const auto base = range_base(options.index);
    const SharedMemory memory(kDeviceMemoryFd, options.capacity, base, Access::kReadWrite);
    for (const auto& [fd, range] :
         {std::pair(kPinnedFd, kPinnedRange), {kManagedFd, kManagedRange}}) {
      const SharedMemory of_host(fd, kHostCapacity, range_base(range), Access::kReadWrite);
    }
    const SharedMemory board(kBoardFd, sizeof(Board), 0, Access::kReadWrite);
    device = std::make_unique<Device>(options, *static_cast<Board*>(board.data()));
  } catch (const std::exception& e) {
    greet({}, e.what());
    return 1;
  }
  catch_illegal_addresses(device->checker());
  end_with_the_host();
  greet(device->kernels(), "");
  device->serve(kSocketFd);
  return 0;
}
