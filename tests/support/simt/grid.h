#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

// Executes kernels as CUDA would, on one thread of the host: every CUDA thread is a fiber, blocks
// run one after the other. What a kernel may not do ends the launch with an Error that names the
// threads and places: barriers that only some threads of a block reach, warp calls that only some
// of the named lanes reach, more shared memory than a block can have. Memory ordering and lockstep
// are not emulated; an Observer sees what orders the threads and can check for races.
namespace simt {

// Code of the emulator that is compiled with kernels: its own accesses are none of the kernel's.
#define SIMT_UNCHECKED __attribute__((no_sanitize("thread")))

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Index {
  unsigned x = 1, y = 1, z = 1;
  Index(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  uint64_t count() const { return uint64_t{x} * y * z; }
};
// The index of number i among `extent`, x first.
Index index_of(uint64_t i, const Index& extent);

// Where a thread waits, for error messages.
struct Place {
  const char* call;
  const char* file;
  int line;
};

inline constexpr unsigned kWarp = 32, kMaxThreads = 1024;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// One call of all lanes in `mask` together. When the last of them has arrived, `execute` acts for
// all: lanes[i] is lane i's call, null for lanes outside the mask.
struct WarpCall {
  unsigned mask;
  Place place;
  void (*execute)(WarpCall* const* lanes);
  const void* in[3];           // the operands of this lane
  void* out;                   // its result
  bool orders_memory = false;  // true for __syncwarp alone: CUDA promises it for no other warp call
};

// The order of blocks, and of threads between two barriers. A kernel without races gives the same
// bits in any order.
enum class Order : uint8_t { kForward, kReverse, kShuffled };
class WithOrder {
 public:
  explicit WithOrder(Order order, uint32_t seed = 1);
  ~WithOrder();
  WithOrder(const WithOrder&) = delete;
  WithOrder& operator=(const WithOrder&) = delete;

 private:
  Order before_;
  uint32_t seed_before_;
};

// While it lives a block may have so much shared memory, as on a device; a launch that asks for
// more is an Error. Without one there is no limit.
class WithSharedMemory {
 public:
  explicit WithSharedMemory(size_t bytes);
  ~WithSharedMemory();
  WithSharedMemory(const WithSharedMemory&) = delete;
  WithSharedMemory& operator=(const WithSharedMemory&) = delete;

 private:
  size_t before_;
};

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Notified of what runs and what orders it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void block_begins(const Index& block) = 0;
  virtual void thread_switches(unsigned number) = 0;  // within the block
  virtual void barrier_ends() = 0;
  virtual void lanes_sync(unsigned warp, unsigned mask) = 0;
  // By warp calls and atomics, whose own code is not instrumented.
  virtual void access(const void* at, size_t bytes, Access kind) = 0;
};
class WithObserver {
 public:
  explicit WithObserver(Observer* observer);
  ~WithObserver();
  WithObserver(const WithObserver&) = delete;
  WithObserver& operator=(const WithObserver&) = delete;
};
// Reports an access to the observer, if there is one.
void observe(const void* at, size_t bytes, Access kind);

// CUDA's built-in variables. They do not change while a thread lives, so the compiler may keep
// them; functions, so that instrumented kernels do not access memory of the emulator.
[[gnu::const]] Index thread_index();
[[gnu::const]] Index block_index();
[[gnu::const]] Index block_size();
[[gnu::const]] Index grid_size();
[[gnu::const]] unsigned lane_index();
[[gnu::const]] std::byte* shared_memory();  // dynamic shared memory of the block

void barrier(const Place& place);
void warp_call(WarpCall& call);
// Ends the launch with an Error from anywhere below a kernel, without unwinding its thread.
[[noreturn]] void fail(const std::string& message);
bool in_kernel();

struct Shape {
  Index grid, block;
  size_t shared_bytes = 0;
};
// `kernel(argument)` once for every thread of every block. Shared memory begins as NaNs.
using Body = void (*)(void* argument);
void run_grid(const Shape& shape, Body kernel, void* argument);

// Dynamic shared memory and stacks of this thread of the host; `run_grid` makes them on first use.
std::span<std::byte> shared_range();
std::span<std::byte> stack_range();

}  // namespace simt
