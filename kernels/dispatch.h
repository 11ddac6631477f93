#pragma once

#include <utility>

#include "core/host_access.h"
#include "core/memory/exec.h"

// The one switch of all kernels: a kernel checks its arguments and then goes through dispatch(),
// which knows the call, the device and the amount of work. Plans, timers and traces hook in here
// and nowhere else.
namespace weft::kernels {

// Bytes of the elements that views cover; absent ones count nothing.
template <class... Views>
int64_t bytes_of(const Views&... views) {
  const auto one = [](const auto& v) {
    return v.data == nullptr ? int64_t{0} : v.shape.elements() * size_of(v.dtype);
  };
  return (int64_t{0} + ... + one(ConstView(views)));
}

// For counting FLOPs: sums and products are one each, and so are quotients, roots and elementary
// functions.
inline double elements(ConstView x) { return static_cast<double>(x.shape.elements()); }

// Kernels over indices (choices of experts, orders, counts) decide shapes: they run in a rehearsal
// too, on memory from Exec::host.
enum class Over : uint8_t { kNumbers, kIndices };

// One call of a kernel. `name` is that of its body: a GPU body is found by it.
struct KernelCall {
  const char* name;
  DType type = DType::kF32;       // of the operands that decide its speed
  double flops = 0;               // multiply and add counted apart
  int64_t read = 0, written = 0;  // bytes, each operand once
  Over over = Over::kNumbers;
};

// Runs a kernel with its checked arguments. `cpu` is the body in kernels/<group>/cpu, which runs
// tasks on exec.threads over host memory. The body for a GPU has the same name and the same
// signature, so that no contract names a device.
template <class... Parameters, class... Arguments>
void dispatch(Exec& exec, const KernelCall& call, void (*cpu)(Exec&, Parameters...),
              Arguments&&... arguments) {
  WEFT_CHECK(exec.device().is_cpu(), "{} has no CUDA kernel", call.name);
  const HostScope scope(exec);
  cpu(exec, std::forward<Arguments>(arguments)...);
}

}  // namespace weft::kernels
