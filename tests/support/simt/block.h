#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/simt/fiber.h"
#include "tests/support/simt/grid.h"
#include "tests/support/simt/thread_order.h"

namespace simt {

enum class State : uint8_t { kReady, kBarrier, kWarpCall, kEnded };

struct Thread {
  Index index;
  unsigned number = 0;  // in the block
  State state = State::kReady;
  Place place{};
  WarpCall* call = nullptr;
  Fiber* fiber = nullptr;  // null before it runs and after it ended
};

// Runs blocks one after the other. Threads run on pooled fibers: one that ends without having
// waited hands its fiber to the next, so a kernel without barriers needs a single fiber and no
// switch between threads.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();

  void begin_launch(const Shape& shape, Body kernel, void* argument, ThreadOrder* order,
                    Observer* observer);
  void run(const Index& block);

  // Called by the running thread.
  void wait(State state, const Place& place, WarpCall* call);
  [[noreturn]] void fail(std::exception_ptr failure);

  const Thread* running() const { return running_; }
  const Shape& shape() const { return shape_; }
  const Index& block() const { return block_; }
  std::span<std::byte> shared_range() const { return shared_; }
  std::span<std::byte> stack_range() const { return stacks_; }

 private:
  void run_to_end();
  static void serve(Fiber& self, void* runner);
  void run_ready(Fiber& self);
  void run_kernel(Thread& thread, Fiber& fiber);
  Thread* next_ready();
  void resume(Fiber& from, Thread& thread);
  Fiber& spare_fiber();
  void drop_waiting();

  unsigned warps() const { return (count_ + kWarp - 1) / kWarp; }
  void run_warp(unsigned warp);
  bool end_warp_calls();
  bool end_warp_call(const Thread& caller);
  void end_barrier();
  std::string groups() const;

  Shape shape_;
  Index block_;
  Body kernel_ = nullptr;
  void* argument_ = nullptr;
  ThreadOrder* order_ = nullptr;
  Observer* observer_ = nullptr;

  std::vector<Thread> threads_;
  unsigned count_ = 0, ended_ = 0;
  Thread* running_ = nullptr;
  Thread* fresh_ = nullptr;  // handed to the fiber that is switched to
  std::exception_ptr failure_;

  // The pass over one warp: its lanes in the order they run.
  unsigned first_ = 0, lanes_ = 0, next_ = 0;
  const uint8_t* lane_order_ = nullptr;

  Fiber scheduler_;
  std::span<std::byte> shared_, stacks_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> spare_;
};

}  // namespace simt
