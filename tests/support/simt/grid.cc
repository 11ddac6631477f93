#include "tests/support/simt/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/simt/fiber.h"

namespace simt {

// CUDA's built-in variables belong to the running thread; kernels name them without being handed
// anything. A bare pointer: a thread_local with a constructor would be several times slower.
constinit thread_local View* current = nullptr;

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

constinit thread_local Order current_order = Order::kForward;
constinit thread_local uint32_t current_seed = 1;
constinit thread_local size_t shared_limit = std::numeric_limits<size_t>::max();

enum class State : uint8_t { kReady, kBarrier, kWarpCall, kEnded };

struct Thread : View {
  explicit Thread(unsigned number) : number(number), fiber(kStackBytes) {}

  unsigned number;  // in the block
  State state = State::kReady;
  Place place{};
  WarpCall* call = nullptr;
  std::exception_ptr failure;
  void (*kernel)(void*) = nullptr;
  void* argument = nullptr;
  Fiber fiber;
};

Thread& running() { return *static_cast<Thread*>(current); }

void run_kernel(void* self) {
  auto* thread = static_cast<Thread*>(self);
  try {
    thread->kernel(thread->argument);
  } catch (...) {
    thread->failure = std::current_exception();
  }
  thread->state = State::kEnded;
}

void wait(State state, const Place& place) {
  Thread& thread = running();
  thread.state = state;
  thread.place = place;
  thread.fiber.suspend();
}

bool same(const Place& a, const Place& b) {
  return a.line == b.line && std::strcmp(a.call, b.call) == 0 && std::strcmp(a.file, b.file) == 0;
}

std::string name_of(const Thread& t) {
  if (t.state == State::kEnded) return "ended";
  std::string at = fmt::format("wait at {}", t.place.call);
  if (t.place.line > 0) at += fmt::format(" ({}:{})", t.place.file, t.place.line);
  if (t.state != State::kWarpCall) return at;
  return fmt::format("{} for lanes {:#010x}", at, t.call->mask);
}

// One block at a time; the fibers serve all blocks of a launch.
class Block {
 public:
  Block(const Shape& shape, void (*kernel)(void*), void* argument)
      : shape_(shape), memory_(new std::byte[shape.shared_bytes]), random_(current_seed) {
    const auto count = static_cast<unsigned>(shape.block.count());
    for (unsigned i = 0; i < count; ++i) {
      threads_.push_back(std::make_unique<Thread>(i));
      Thread& t = *threads_.back();
      t.thread = {i % shape.block.x, i / shape.block.x % shape.block.y,
                  i / shape.block.x / shape.block.y};
      t.block_size = shape.block;
      t.grid_size = shape.grid;
      t.shared = memory_.get();
      t.lane = i % kWarp;
      t.kernel = kernel;
      t.argument = argument;
    }
  }

  void run(const Index& index) {
    index_ = index;
    std::memset(memory_.get(), 0xff, shape_.shared_bytes);
    for (auto& t : threads_) {
      t->block = index;
      t->state = State::kReady;
      t->fiber.start(run_kernel, t.get());
    }
    for (;;) {
      for (const unsigned warp : in_order(warps())) run_warp(warp);
      if (all_ended()) return;
      end_barrier();
    }
  }

 private:
  bool all_ended() const {
    return std::all_of(threads_.begin(), threads_.end(),
                       [](const auto& t) { return t->state == State::kEnded; });
  }
  unsigned warps() const { return (static_cast<unsigned>(threads_.size()) + kWarp - 1) / kWarp; }

  // Until every lane waits at a barrier or has ended.
  void run_warp(unsigned warp) {
    const unsigned first = warp * kWarp;
    const unsigned count = std::min(kWarp, static_cast<unsigned>(threads_.size()) - first);
    do {
      for (const unsigned lane : in_order(count)) {
        Thread& t = *threads_[first + lane];
        if (t.state == State::kReady) step(t);
      }
    } while (end_warp_calls(first, count));
  }

  void step(Thread& t) {
    current = &t;
    t.fiber.resume();
    current = nullptr;
    if (t.failure) std::rethrow_exception(std::exchange(t.failure, nullptr));
  }

  // Executes the calls that are complete; false when there is none.
  bool end_warp_calls(unsigned first, unsigned count) {
    bool any = false;
    for (unsigned lane = 0; lane < count; ++lane) {
      const Thread& t = *threads_[first + lane];
      if (t.state == State::kWarpCall) any |= end_warp_call(first, count, t);
    }
    return any;
  }
  bool end_warp_call(unsigned first, unsigned count, const Thread& asking) {
    WarpCall* lanes[kWarp] = {};
    const WarpCall& call = *asking.call;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((call.mask >> lane & 1) == 0) continue;
      if (lane >= count) return false;
      const Thread& t = *threads_[first + lane];
      if (t.state != State::kWarpCall || t.call->mask != call.mask ||
          !same(t.place, asking.place)) {
        return false;
      }
      lanes[lane] = t.call;
    }
    if (lanes[asking.lane] == nullptr) return false;
    call.execute(lanes);
    for (unsigned lane = 0; lane < count; ++lane) {
      if (lanes[lane] != nullptr) threads_[first + lane]->state = State::kReady;
    }
    return true;
  }

  void end_barrier() {
    const Thread& one = *threads_.front();
    const bool together = std::all_of(threads_.begin(), threads_.end(), [&](const auto& t) {
      return t->state == State::kBarrier && same(t->place, one.place);
    });
    if (!together) {
      throw Error(fmt::format("block ({}, {}, {}) cannot go on: {}", index_.x, index_.y, index_.z,
                              groups()));
    }
    for (auto& t : threads_) t->state = State::kReady;
  }

  // "threads 0-31 wait at __syncthreads (a.cu:7); threads 32-63 ended"
  std::string groups() const {
    std::string text;
    for (size_t i = 0; i < threads_.size();) {
      const std::string name = name_of(*threads_[i]);
      size_t end = i + 1;
      while (end < threads_.size() && name_of(*threads_[end]) == name) ++end;
      text += fmt::format("{}threads {}-{} {}", i == 0 ? "" : "; ", i, end - 1, name);
      i = end;
    }
    return text;
  }

  std::vector<unsigned> in_order(unsigned count) {
    std::vector<unsigned> order(count);
    std::iota(order.begin(), order.end(), 0u);
    if (current_order == Order::kReverse) std::reverse(order.begin(), order.end());
    if (current_order == Order::kShuffled) {
      for (unsigned i = count; i > 1; --i) {
        random_ = random_ * 1664525u + 1013904223u;
        std::swap(order[i - 1], order[(random_ >> 8) % i]);
      }
    }
    return order;
  }

  Shape shape_;
  Index index_;
  std::unique_ptr<std::byte[]> memory_;
  uint32_t random_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace

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

void barrier(const Place& place) { wait(State::kBarrier, place); }

void warp_call(WarpCall& call) {
  running().call = &call;
  wait(State::kWarpCall, call.place);
}

void run_grid(const Shape& shape, void (*kernel)(void*), void* argument) {
  if (shape.shared_bytes > shared_limit) {
    throw Error(fmt::format("a block asks for {} bytes of shared memory and can have {}",
                            shape.shared_bytes, shared_limit));
  }
  if (shape.grid.count() == 0 || shape.block.count() == 0 || shape.block.count() > 1024) {
    throw Error(
        fmt::format("a launch of {} blocks of {} threads: CUDA takes at least one block and "
                    "1 to 1024 threads",
                    shape.grid.count(), shape.block.count()));
  }
  Block block(shape, kernel, argument);
  for (unsigned z = 0; z < shape.grid.z; ++z) {
    for (unsigned y = 0; y < shape.grid.y; ++y) {
      for (unsigned x = 0; x < shape.grid.x; ++x) block.run({x, y, z});
    }
  }
}

}  // namespace simt
