#include "tests/support/simt/block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace simt {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10, kSharedBytes = size_t{1} << 20;
constexpr size_t kColors = 64, kColorBytes = 5 * 64;

std::span<std::byte> reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(at), bytes};
}

bool same(const Place& a, const Place& b) {
  if (a.line != b.line) return false;
  if (a.call == b.call && a.file == b.file) return true;
  return std::strcmp(a.call, b.call) == 0 && std::strcmp(a.file, b.file) == 0;
}

std::string name_of(const Thread& t) {
  if (t.state == State::kEnded) return "ended";
  std::string at = fmt::format("wait at {}", t.place.call);
  if (t.place.line > 0) at += fmt::format(" ({}:{})", t.place.file, t.place.line);
  if (t.state != State::kWarpCall) return at;
  return fmt::format("{} for lanes {:#010x}", at, t.call->mask);
}

}  // namespace

BlockRunner::BlockRunner()
    : threads_(kMaxThreads),
      shared_(reserve(kSharedBytes)),
      stacks_(reserve((kMaxThreads + 1) * kStackBytes)) {}

BlockRunner::~BlockRunner() {
  fibers_.clear();
  munmap(shared_.data(), shared_.size());
  munmap(stacks_.data(), stacks_.size());
}

void BlockRunner::begin_launch(const Shape& shape, Body kernel, void* argument, ThreadOrder* order,
                               Observer* observer) {
  if (shape.shared_bytes > kSharedBytes) {
    throw Error(fmt::format("a block asks for {} bytes of shared memory; the emulator has {}",
                            shape.shared_bytes, kSharedBytes));
  }
  shape_ = shape;
  kernel_ = kernel;
  argument_ = argument;
  order_ = order;
  observer_ = observer;
  count_ = static_cast<unsigned>(shape.block.count());
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].index = index_of(i, shape.block);
    threads_[i].number = i;
    threads_[i].fiber = nullptr;
  }
}

void BlockRunner::run(const Index& block) {
  block_ = block;
  std::memset(shared_.data(), 0xff, shape_.shared_bytes);
  for (unsigned i = 0; i < count_; ++i) threads_[i].state = State::kReady;
  ended_ = 0;
  if (observer_ != nullptr) observer_->block_begins(block);
  try {
    run_to_end();
  } catch (...) {
    drop_waiting();
    throw;
  }
}

void BlockRunner::run_to_end() {
  for (;;) {
    const uint8_t* order = order_->warps();
    for (unsigned i = 0; i < kWarp; ++i) {
      if (order[i] < warps()) run_warp(order[i]);
    }
    if (ended_ == count_) return;
    end_barrier();
  }
}

// Until every lane waits at a barrier or has ended.
void BlockRunner::run_warp(unsigned warp) {
  first_ = warp * kWarp;
  lanes_ = std::min(kWarp, count_ - first_);
  do {
    lane_order_ = order_->lanes();
    next_ = 0;
    if (Thread* t = next_ready()) resume(scheduler_, *t);
    running_ = nullptr;
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  } while (end_warp_calls());
}

Thread* BlockRunner::next_ready() {
  while (next_ < kWarp) {
    const unsigned lane = lane_order_[next_++];
    if (lane >= lanes_) continue;
    Thread& t = threads_[first_ + lane];
    if (t.state == State::kReady) return &t;
  }
  return nullptr;
}

// Leaves `from` for `thread`, which runs on its own fiber or begins on a spare one.
void BlockRunner::resume(Fiber& from, Thread& thread) {
  running_ = &thread;
  if (observer_ != nullptr) observer_->thread_switches(thread.number);
  if (thread.fiber != nullptr) {
    from.switch_to(*thread.fiber);
  } else {
    fresh_ = &thread;
    from.switch_to(spare_fiber());
  }
}

Fiber& BlockRunner::spare_fiber() {
  if (spare_.empty()) {
    std::byte* stack = stacks_.data() + fibers_.size() * kStackBytes;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mprotect(stack, page, PROT_NONE);  // a stack that overflows is a fault, not a mystery
    // Tops at different offsets: at equal ones all stacks would compete for the same cache sets.
    const size_t below = fibers_.size() % kColors * kColorBytes;
    const std::span<std::byte> usable(stack + page, kStackBytes - page - below);
    fibers_.push_back(std::make_unique<Fiber>(usable, serve, this));
    return *fibers_.back();
  }
  Fiber& fiber = *spare_.back();
  spare_.pop_back();
  return fiber;
}

void BlockRunner::serve(Fiber& self, void* runner) {
  for (;;) static_cast<BlockRunner*>(runner)->run_ready(self);
}

// Threads that have not begun, one after the other, until the next ready one has a fiber of its
// own or there is none.
void BlockRunner::run_ready(Fiber& self) {
  Thread* thread = std::exchange(fresh_, nullptr);
  for (;;) {
    run_kernel(*thread, self);
    thread = failure_ == nullptr ? next_ready() : nullptr;
    if (thread == nullptr || thread->fiber != nullptr) break;
    running_ = thread;
    if (observer_ != nullptr) observer_->thread_switches(thread->number);
  }
  spare_.push_back(&self);
  if (thread == nullptr) {
    self.switch_to(scheduler_);
  } else {
    resume(self, *thread);
  }
}

void BlockRunner::run_kernel(Thread& thread, Fiber& fiber) {
  thread.fiber = &fiber;
  try {
    kernel_(argument_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  thread.fiber = nullptr;
  thread.state = State::kEnded;
  ++ended_;
}

void BlockRunner::wait(State state, const Place& place, WarpCall* call) {
  Thread& thread = *running_;
  thread.state = state;
  thread.place = place;
  thread.call = call;
  Fiber& fiber = *thread.fiber;
  if (Thread* next = next_ready()) {
    resume(fiber, *next);
  } else {
    fiber.switch_to(scheduler_);
  }
}

void BlockRunner::fail(std::exception_ptr failure) {
  failure_ = std::move(failure);
  running_->fiber->switch_to(scheduler_);
  std::terminate();  // this fiber was dropped
}

// After a failure: fibers that wait in the middle of a kernel start over.
void BlockRunner::drop_waiting() {
  for (unsigned i = 0; i < count_; ++i) {
    Fiber* fiber = std::exchange(threads_[i].fiber, nullptr);
    if (fiber == nullptr) continue;
    fiber->restart();
    spare_.push_back(fiber);
  }
}

// Executes the calls that are complete; false when there is none.
bool BlockRunner::end_warp_calls() {
  bool any = false;
  for (unsigned lane = 0; lane < lanes_; ++lane) {
    const Thread& t = threads_[first_ + lane];
    if (t.state == State::kWarpCall) any |= end_warp_call(t);
  }
  return any;
}

bool BlockRunner::end_warp_call(const Thread& caller) {
  WarpCall* lanes[kWarp] = {};
  const WarpCall& call = *caller.call;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((call.mask >> lane & 1) == 0) continue;
    if (lane >= lanes_) return false;
    const Thread& t = threads_[first_ + lane];
    if (t.state != State::kWarpCall || t.call->mask != call.mask || !same(t.place, caller.place)) {
      return false;
    }
    lanes[lane] = t.call;
  }
  if (lanes[caller.number % kWarp] == nullptr) return false;
  call.execute(lanes);
  if (call.orders_memory && observer_ != nullptr) {
    observer_->lanes_sync(first_ / kWarp, call.mask);
  }
  for (unsigned lane = 0; lane < lanes_; ++lane) {
    if (lanes[lane] != nullptr) threads_[first_ + lane].state = State::kReady;
  }
  return true;
}

void BlockRunner::end_barrier() {
  const Thread& one = threads_.front();
  const bool together = std::all_of(
      threads_.begin(), threads_.begin() + count_,
      [&](const auto& t) { return t.state == State::kBarrier && same(t.place, one.place); });
  if (!together) {
    throw Error(
        fmt::format("block ({}, {}, {}) cannot go on: {}", block_.x, block_.y, block_.z, groups()));
  }
  for (unsigned i = 0; i < count_; ++i) threads_[i].state = State::kReady;
  if (observer_ != nullptr) observer_->barrier_ends();
}

// "threads 0-31 wait at __syncthreads (a.cu:7); threads 32-63 ended"
std::string BlockRunner::groups() const {
  std::string text;
  for (unsigned i = 0; i < count_;) {
    const std::string name = name_of(threads_[i]);
    unsigned end = i + 1;
    while (end < count_ && name_of(threads_[end]) == name) ++end;
    text += fmt::format("{}threads {}-{} {}", i == 0 ? "" : "; ", i, end - 1, name);
    i = end;
  }
  return text;
}

}  // namespace simt
