#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/simt/grid.h"
#include "tests/support/vgpu/check/allocations.h"
#include "tests/support/vgpu/check/device_error.h"
#include "tests/support/vgpu/check/history.h"
#include "tests/support/vgpu/check/shadow.h"
#include "tests/support/vgpu/check/thread_races.h"
#include "tests/support/vgpu/wire/layout.h"

namespace vgpu {

// Memory of one kind: device memory, pinned or managed memory of the host.
struct Space {
  Space(int range, uint64_t capacity)
      : base(range_base(range)),
        capacity(capacity),
        device_memory(range < kMaxDevices),
        allocations(base, capacity),
        words(capacity / 4),
        halves(capacity / 2) {}

  uint64_t base, capacity;
  bool device_memory;  // the host cannot write it, so every byte read was written by a command
  Allocations allocations;
  SparseArray<Word> words;
  SparseArray<Half> halves;
};

// A library of twins in memory.
struct TwinImage {
  std::span<std::byte> static_shared;                // variables of its kernels in shared memory
  std::vector<std::span<const std::byte>> segments;  // code and constants
};

// Checks every access of commands to memory: that it is allocated, that bytes are written before
// they are read, that accesses of unordered commands and of unordered threads do not conflict.
// Commands other than kernels hand in ranges; kernels are instrumented (hooks.cc) and observed.
class Checker : public simt::Observer {
 public:
  // `thorough`: all of it; else only that ranges of commands are allocated.
  Checker(int device, uint64_t capacity, bool thorough);

  Allocations* allocations(uint64_t address);
  void forget(uint64_t at, uint64_t bytes);  // a new allocation: not written yet
  std::vector<std::string>& kernel_names() { return kernel_names_; }
  bool thorough() const { return thorough_; }

  void begin(const CommandInfo& command, std::span<const uint32_t> clock);
  std::string running_command() const {
    return history_.describe(history_.running(), kernel_names_);
  }
  enum class Direction { kReads, kWrites };
  // Throws DeviceError.
  void access_range(Direction direction, uint64_t at, uint64_t bytes);

  // `image`: the kernel's library.
  void begin_kernel(const simt::Shape& shape, const TwinImage& image);
  // The error that ended the kernel, if a check of this class did.
  std::optional<DeviceError> take_error() { return std::exchange(error_, std::nullopt); }
  // An access to an address that is not mapped at all, found by a signal.
  [[noreturn]] void illegal_address(uint64_t at, const void* pc);

  // By an instrumented kernel: `bytes` at address `at`, by the instruction at pc. Does not return
  // from what is a mistake.
  struct Where {
    uint64_t at;
    uint64_t bytes;
    simt::Access kind;
    const void* pc;
  };
  template <simt::Access kind>
  void kernel_access(const Where& where);
  [[noreturn]] void report_misaligned(const Where& where);

  void block_begins(const simt::Index& block) override;
  void thread_switches(unsigned number) override { races_.switch_to(number); }
  void barrier_ends() override { races_.barrier(); }
  void lanes_sync(unsigned warp, unsigned mask) override { races_.sync_lanes(warp, mask); }
  void access(const void* at, size_t bytes, simt::Access kind) override;

 private:
  using Memory = ThreadRaces::Memory;
  static constexpr auto kRead = simt::Access::kRead;
  static constexpr auto kWrite = simt::Access::kWrite;
  static constexpr uint64_t kStaticShared = uint64_t{1} << 20;  // after the dynamic, in the shadow

  template <simt::Access kind>
  void access_global(Space& space, const Where& where);
  template <simt::Access kind>
  void access_word(Space& space, uint64_t begin, uint64_t end, const Where& where);
  template <simt::Access kind>
  void access_shared(uint64_t offset, const Where& where);
  void access_elsewhere(const Where& where);
  template <simt::Access kind>
  bool order_commands(Space& space, uint64_t word, unsigned mask, const void* pc);

  [[noreturn]] void stop(int code, const std::string& text);
  [[noreturn]] void report_dead(const Where& where);
  [[noreturn]] void report_unwritten(const Where& where);
  [[noreturn]] void report_race(const Where& where, const Half& half, Memory memory);
  struct Other {
    uint32_t command;
    bool wrote;
  };
  [[noreturn]] void report_order(const Space& space, uint64_t word, Other other, simt::Access kind,
                                 const void* pc);
  std::string describe(uint64_t at) const;
  std::string running() const;  // the command and, in a kernel, the thread
  std::string running_at(const void* pc) const;

  int device_;
  bool thorough_;
  std::array<std::unique_ptr<Space>, kRanges> spaces_;
  std::vector<std::string> kernel_names_;
  History history_;
  ThreadRaces races_;
  std::optional<DeviceError> error_;
  // State of the running kernel.
  uint64_t stacks_begin_ = 0, stacks_bytes_ = 0, shared_begin_ = 0, shared_bytes_ = 0;
  uint64_t static_begin_ = 0, static_bytes_ = 0;
  std::span<const std::span<const std::byte>> constants_;  // kernels may read them
  SparseArray<Half> shared_halves_;                        // dynamic shared memory, then static
};

}  // namespace vgpu
