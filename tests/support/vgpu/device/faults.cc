#include "tests/support/vgpu/device/faults.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>

#include "tests/support/simt/grid.h"

namespace vgpu {
namespace {

constinit Checker* checker_of_process = nullptr;
constinit uint64_t fault_address = 0;
constinit const void* fault_instruction = nullptr;
alignas(64) std::byte signal_stack[64 << 10], stack_after_fault[128 << 10];

[[noreturn]] void after_fault() {
  checker_of_process->illegal_address(fault_address, fault_instruction);
}

// Returns into after_fault, on a stack of its own (that of the thread may have overflowed), since
// little may be done in a signal handler.
void on_fault(int number, siginfo_t* info, void* context) {
#ifdef __x86_64__
  if (simt::in_kernel()) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    fault_address = reinterpret_cast<uint64_t>(info->si_addr);
    fault_instruction = reinterpret_cast<const void*>(registers[REG_RIP] + 1);
    registers[REG_RSP] =
        reinterpret_cast<greg_t>(stack_after_fault + sizeof stack_after_fault - 64 - 8);
    registers[REG_RIP] = reinterpret_cast<greg_t>(after_fault);
    return;
  }
#endif
  char text[96];
  const int n = std::snprintf(text, sizeof text, "vgpu: device process: signal %d at %p\n", number,
                              info->si_addr);
  if (write(2, text, static_cast<size_t>(n)) < 0) _exit(98);
  _exit(97);
}

}  // namespace

void catch_illegal_addresses(Checker& checker) {
  checker_of_process = &checker;
  const stack_t stack{signal_stack, 0, sizeof signal_stack};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace vgpu
