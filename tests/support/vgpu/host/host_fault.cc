#include "tests/support/vgpu/host/host_fault.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/vgpu/host/runtime.h"

namespace vgpu {
namespace {

constexpr int kFaultCode = 87;

constinit Runtime* runtime_of_process = nullptr;
struct sigaction action_before;

// Texts go through a buffer of the handler: nothing is allocated there.
class Message {
 public:
  template <class... A>
  void add(const char* format, A... values) {
    const int n = std::snprintf(text_ + size_, sizeof text_ - size_, format, values...);
    size_ = std::min(size_ + static_cast<size_t>(n), sizeof text_ - 1);
  }
  void write() const {
    if (::write(STDERR_FILENO, text_, size_) < 0) _exit(kFaultCode);
  }

 private:
  char text_[2048];
  size_t size_ = 0;
};

void describe(Message& m, uint64_t range, uint64_t at) {
  const Allocation* a = runtime_of_process->heap(static_cast<int>(range)).find(at);
  if (a == nullptr) {
    m.add("%#lx, which is not allocated", at);
  } else {
    m.add("%#lx, byte %lu of the %lu bytes of allocation %u (%s)", at, at - a->at, a->bytes,
          a->number, a->by.c_str());
  }
}

bool explain(Message& m, uint64_t at) {
  const uint64_t range = range_of(at);
  if (range < kMaxDevices && runtime_of_process->started(static_cast<int>(range))) {
    m.add("vgpu: code of the host touches memory of device %lu at ", range);
    describe(m, range, at);
    return true;
  }
  if (range == kManagedRange) {
    m.add("vgpu: code of the host touches managed memory while commands are pending, at ");
    describe(m, range, at);
    return true;
  }
  if (range != kPinnedRange) return false;
  const HostGuard::Copy* copy = runtime_of_process->guard().in_the_way(at);
  if (copy == nullptr) return false;
  m.add("vgpu: code of the host %s pinned memory that a copy is %s, at ",
        copy->use == HostGuard::Use::kRead ? "writes" : "touches",
        copy->use == HostGuard::Use::kRead ? "reading" : "writing");
  describe(m, range, at);
  m.add("\n  %s, stream %u command %u: the host has not waited for it", copy->what.c_str(),
        copy->ticket.stream, copy->ticket.number);
  return true;
}

void on_fault(int number, siginfo_t* info, void* context) {
  Message m;
  if (explain(m, reinterpret_cast<uint64_t>(info->si_addr))) {
    m.add("\n  by:\n");
    m.write();
    void* frames[24];
    const int count = backtrace(frames, 24);
    backtrace_symbols_fd(frames + 2, count - 2, STDERR_FILENO);  // without the handler's own
    _exit(kFaultCode);
  }
  // Not ours: calls the previous handler, or the default.
  if ((action_before.sa_flags & SA_SIGINFO) != 0) {
    action_before.sa_sigaction(number, info, context);
  } else {
    sigaction(number, &action_before, nullptr);  // returns to the access, which faults again
  }
}

}  // namespace

void name_host_faults(Runtime& runtime) {
  runtime_of_process = &runtime;
  void* frames[1];
  backtrace(frames, 1);  // loads what it needs outside the handler
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &action_before);
}

}  // namespace vgpu
