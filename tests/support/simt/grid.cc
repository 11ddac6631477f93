#include "tests/support/simt/grid.h"

#include <fmt/format.h>

#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "tests/support/simt/block.h"
#include "tests/support/simt/thread_order.h"

namespace simt {
namespace {

constinit thread_local Order current_order = Order::kForward;
constinit thread_local uint32_t current_seed = 1;
constinit thread_local size_t shared_limit = std::numeric_limits<size_t>::max();
constinit thread_local Observer* current_observer = nullptr;

BlockRunner& runner_of_this_thread() {
  static thread_local BlockRunner runner;
  return runner;
}

// CUDA's built-in variables belong to the running thread; kernels name them without being handed
// anything. A bare pointer: a thread_local with a constructor would be several times slower.
constinit thread_local BlockRunner* current = nullptr;

// While it lives kernels run here.
class Running {
 public:
  explicit Running(BlockRunner& runner) { current = &runner; }
  ~Running() { current = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

void check(const Shape& shape) {
  if (shape.shared_bytes > shared_limit) {
    throw Error(fmt::format("a block asks for {} bytes of shared memory and can have {}",
                            shape.shared_bytes, shared_limit));
  }
  if (shape.grid.count() == 0 || shape.block.count() == 0 || shape.block.count() > kMaxThreads) {
    throw Error(
        fmt::format("a launch of {} blocks of {} threads: CUDA takes at least one block and "
                    "1 to {} threads",
                    shape.grid.count(), shape.block.count(), kMaxThreads));
  }
  if (current != nullptr) throw Error("a kernel launches a kernel");
}

}  // namespace

Index index_of(uint64_t i, const Index& extent) {
  return {static_cast<unsigned>(i % extent.x), static_cast<unsigned>(i / extent.x % extent.y),
          static_cast<unsigned>(i / extent.x / extent.y)};
}

WithOrder::WithOrder(Order order, uint32_t seed)
    : before_(current_order), seed_before_(current_seed) {
  current_order = order;
  current_seed = seed;
}
WithOrder::~WithOrder() {
  current_order = before_;
  current_seed = seed_before_;
}

WithSharedMemory::WithSharedMemory(size_t bytes) : before_(shared_limit) { shared_limit = bytes; }
WithSharedMemory::~WithSharedMemory() { shared_limit = before_; }

WithObserver::WithObserver(Observer* observer) { current_observer = observer; }
WithObserver::~WithObserver() { current_observer = nullptr; }

void observe(const void* at, size_t bytes, Access kind) {
  if (current_observer != nullptr) current_observer->access(at, bytes, kind);
}

Index thread_index() { return current->running()->index; }
Index block_index() { return current->block(); }
Index block_size() { return current->shape().block; }
Index grid_size() { return current->shape().grid; }
unsigned lane_index() { return current->running()->number % kWarp; }
std::byte* shared_memory() { return current->shared_range().data(); }

void barrier(const Place& place) { current->wait(State::kBarrier, place, nullptr); }
void warp_call(WarpCall& call) { current->wait(State::kWarpCall, call.place, &call); }

bool in_kernel() { return current != nullptr && current->running() != nullptr; }
void fail(const std::string& message) {
  std::exception_ptr failure;
  {
    const Error error(message);  // destroyed before the fiber is dropped
    failure = std::make_exception_ptr(error);
  }
  current->fail(std::move(failure));
}

void run_grid(const Shape& shape, Body kernel, void* argument) {
  check(shape);
  BlockRunner& runner = runner_of_this_thread();
  const Running here(runner);
  ThreadOrder order(current_order, current_seed);
  runner.begin_launch(shape, kernel, argument, &order, current_observer);
  const uint64_t blocks = shape.grid.count();
  order.begin_blocks(blocks);
  for (uint64_t i = 0; i < blocks; ++i) runner.run(index_of(order.block(i), shape.grid));
}

std::span<std::byte> shared_range() { return runner_of_this_thread().shared_range(); }
std::span<std::byte> stack_range() { return runner_of_this_thread().stack_range(); }

}  // namespace simt
