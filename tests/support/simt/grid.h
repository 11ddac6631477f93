#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

// Executes kernels as CUDA would, on one thread of the host: every CUDA thread is a fiber, blocks
// run one after the other. What a kernel may not do ends the launch with an Error that names the
// threads and places: barriers that only some threads of a block reach, warp calls that only some
// of the named lanes reach, more shared memory than a block can have. Memory ordering and lockstep are not emulated.
namespace simt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Index {
  unsigned x = 1, y = 1, z = 1;
  Index(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// Where a thread waits, for what is said about it.
struct Place {
  const char* call;
  const char* file;
  int line;
};

inline constexpr unsigned kWarp = 32;

// One call of all lanes in `mask` together. When the last of them has arrived, `execute` acts for
// all: lanes[i] is lane i's call, null for lanes outside the mask.
struct WarpCall {
  unsigned mask;
  Place place;
  void (*execute)(WarpCall* const* lanes);
  const void* in[3];  // the operands of this lane
  void* out;          // its result
};

// The order in which threads run between two barriers. A kernel without races gives the same bits
// in any order.
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

// While it lives a block may have so much shared memory, as on a device; a launch that asks for more
// is an Error. Without one there is no limit.
class WithSharedMemory {
 public:
  explicit WithSharedMemory(size_t bytes);
  ~WithSharedMemory();
  WithSharedMemory(const WithSharedMemory&) = delete;
  WithSharedMemory& operator=(const WithSharedMemory&) = delete;

 private:
  size_t before_;
};

// What CUDA's built-in variables say; a kernel reaches it through the words of simt/cuda.h.
struct View {
  Index thread, block, block_size, grid_size;
  std::byte* shared;  // dynamic shared memory of the block
  unsigned lane;
};
extern constinit thread_local View* current;

void barrier(const Place& place);
void warp_call(WarpCall& call);

struct Shape {
  Index grid, block;
  size_t shared_bytes = 0;
};
// `kernel(argument)` once for every thread of every block. Shared memory begins as NaNs.
void run_grid(const Shape& shape, void (*kernel)(void*), void* argument);

}  // namespace simt
