#include <driver_types.h>

#include <fmt/format.h>

#include "tests/support/vgpu/check/checker.h"
#include "tests/support/vgpu/check/where.h"

// Texts of errors: a line each for the mistake and its place in memory, this side, the other side.
namespace vgpu {
namespace {

const char* verb_of(simt::Access kind) {
  switch (kind) {
    case simt::Access::kRead: return "reads";
    case simt::Access::kWrite: return "writes";
    case simt::Access::kAtomic: return "updates";
  }
  return "";
}

}  // namespace

void Checker::stop(int code, const std::string& text) {
  const std::string message = fmt::format("device {}: {}", device_, text);
  if (!simt::in_kernel()) throw DeviceError(code, message);
  error_.emplace(code, message);
  simt::fail(message);
}

std::string Checker::describe(uint64_t at) const {
  const uint64_t range = range_of(at);
  if (range < kRanges && spaces_[range] != nullptr) {
    return fmt::format("{:#x}, {}", at, spaces_[range]->allocations.describe(at));
  }
  if (range < kMaxDevices) return fmt::format("{:#x}, memory of device {}", at, range);
  const auto shared = simt::shared_range();
  const uint64_t shared_begin = reinterpret_cast<uint64_t>(shared.data());
  if (at - shared_begin < shared.size()) {
    return fmt::format("byte {} of {} bytes of shared memory", at - shared_begin, shared_bytes_);
  }
  if (at - static_begin_ < static_bytes_) return "a __shared__ variable";
  return fmt::format("{:#x}, no address of the device: a pointer of the host?", at);
}

std::string Checker::running() const {
  const std::string thread = simt::in_kernel() && thorough_ ? ", " + races_.running() : "";
  return running_command() + thread;
}

std::string Checker::running_at(const void* pc) const {
  const std::string place = place_of(pc);
  return running() + (place.empty() ? "" : ", " + place);
}

void Checker::report_dead(const Where& where) {
  stop(cudaErrorIllegalAddress,
       fmt::format("access outside live allocations at {}\n  {} {} bytes: {}", describe(where.at),
                   verb_of(where.kind), where.bytes, running_at(where.pc)));
}

void Checker::illegal_address(uint64_t at, const void* pc) { report_dead({at, 1, kRead, pc}); }

void Checker::report_misaligned(const Where& where) {
  stop(cudaErrorMisalignedAddress,
       fmt::format("misaligned access of {} bytes at {}\n  {} them: {}", where.bytes,
                   describe(where.at), verb_of(where.kind), running_at(where.pc)));
}

void Checker::report_unwritten(const Where& where) {
  stop(cudaErrorLaunchFailure,
       fmt::format("read of bytes that nobody wrote at {}\n  reads {} bytes: {}",
                   describe(where.at), where.bytes, running_at(where.pc)));
}

void Checker::report_race(const Where& where, const Half& half, Memory memory) {
  const bool with_write = where.kind == kRead || half.write >> 32 != 0;
  const bool other_wrote =
      with_write && (memory == Memory::kGlobal ? races_.conflicts<Memory::kGlobal, kRead>(half)
                                               : races_.conflicts<Memory::kShared, kRead>(half));
  stop(cudaErrorLaunchFailure,
       fmt::format("race between threads of a kernel at {}\n  {} {} bytes: {}\n  {} them: {}\n"
                   "  no barrier orders the two",
                   describe(where.at), verb_of(where.kind), where.bytes, running_at(where.pc),
                   other_wrote ? "wrote" : "read",
                   other_wrote ? races_.writer(half) : races_.readers(half)));
}

void Checker::report_order(const Space& space, uint64_t word, Other other, simt::Access kind,
                           const void* pc) {
  stop(
      cudaErrorLaunchFailure,
      fmt::format("conflict between commands without an order at {}\n  {}: {}\n  {}: {}\n"
                  "  no event, stream order or wait of the host orders the two",
                  describe(space.base + 4 * word), verb_of(kind), running_at(pc),
                  other.wrote ? "wrote" : "read", history_.describe(other.command, kernel_names_)));
}

}  // namespace vgpu
