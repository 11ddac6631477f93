#include <driver_types.h>

#include <fmt/format.h>

#include <cstring>

#include "tests/support/vgpu/check/hooks.h"
#include "tests/support/vgpu/device/device.h"

namespace vgpu {
namespace {

simt::Index index_of(const uint32_t (&x)[3]) { return {x[0], x[1], x[2]}; }

// While it lives instrumented code is checked.
class WithChecks {
 public:
  explicit WithChecks(Checker* checker) : observer_(checker) { set_active_checker(checker); }
  ~WithChecks() { set_active_checker(nullptr); }

 private:
  simt::WithObserver observer_;
};

}  // namespace

// A kernel that breaks a rule of the emulator (a divergent barrier, a lane that misses a shuffle)
// or of the checker ends there, as it would with a sticky error.
void Device::launch(const Command& command) {
  Reader r(command.body);
  const auto body = r.take<LaunchBody>();
  const Kernel& kernel = twins_.kernels().at(body.kernel);
  const simt::Shape shape{index_of(body.grid), index_of(body.block), body.shared_bytes};
  alignas(64) std::byte arguments[32 << 10];
  if (r.rest().size() > sizeof arguments) {
    throw DeviceError(cudaErrorLaunchFailure, "a kernel with more than 32 KB of arguments");
  }
  std::memcpy(arguments, r.rest().data(), r.rest().size());
  checker_.begin_kernel(shape, *kernel.image);
  const bool natural = options_.order == 0;
  const Ticket& t = command.header.ticket;  // deterministic order
  const simt::WithOrder order(natural ? simt::Order::kForward : simt::Order::kShuffled,
                              (options_.order * 31 + t.stream) * 10007 + t.number);
  const WithChecks checks(options_.thorough ? &checker_ : nullptr);
  try {
    simt::run_grid(shape, kernel.twin.call, arguments);
  } catch (const std::exception& e) {
    if (auto error = checker_.take_error()) throw std::move(*error);
    throw DeviceError(cudaErrorLaunchFailure, fmt::format("device {}: {}\n  {}", options_.index,
                                                          e.what(), checker_.running_command()));
  }
}

}  // namespace vgpu
