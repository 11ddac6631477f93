#include "core/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

namespace weft {
namespace {

// How long an idle worker looks for the next loop before it sleeps. Loops of one training step follow
// each other within microseconds; a sleeping worker costs about 50 of them to wake.
constexpr int kSpins = 4000;

}  // namespace

struct ThreadPool::Impl {
  // One loop: workers take the next index until none is left. `epoch` tells loops apart; `busy` counts
  // workers that may still touch this loop's task, so that the caller does not return under them.
  std::atomic<uint64_t> epoch{0};
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  std::atomic<bool> stop{false};
  int64_t count = 0;
  Erased call = nullptr;
  void* task = nullptr;
  bool running = false;

  std::mutex mutex;
  std::condition_variable wake;
  std::exception_ptr failure;
  std::vector<std::thread> workers;

  void work(int thread) {
    try {
      for (;;) {
        const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= count) return;
        call(task, i, thread);
      }
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  uint64_t await_loop(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const uint64_t now = epoch.load(std::memory_order_acquire);
      if (now != seen || stop.load(std::memory_order_relaxed)) return now;
      _mm_pause();
    }
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return epoch.load() != seen || stop.load(); });
    return epoch.load(std::memory_order_acquire);
  }

  void worker(int thread) {
    flush_denormals();
    uint64_t seen = 0;
    for (;;) {
      seen = await_loop(seen);
      if (stop.load()) return;
      work(thread);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  WEFT_CHECK(threads >= 1, "a thread pool of {} threads", threads);
  flush_denormals();
  for (int t = 1; t < threads; ++t) {
    impl_->workers.emplace_back([impl = impl_.get(), t] { impl->worker(t); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::size() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::run_erased(int64_t count, Erased call, void* task) {
  if (count <= 0) return;
  if (count == 1 || impl_->workers.empty()) {
    for (int64_t i = 0; i < count; ++i) call(task, i, 0);
    return;
  }
  Impl& impl = *impl_;
  WEFT_CHECK(!impl.running, "a task started a loop on the pool that runs it");
  impl.running = true;
  impl.count = count;
  impl.call = call;
  impl.task = task;
  impl.next.store(0, std::memory_order_relaxed);
  impl.busy.store(static_cast<int>(impl.workers.size()), std::memory_order_relaxed);
  {
    // Under the lock, so that a worker about to sleep cannot miss it.
    const std::lock_guard lock(impl.mutex);
    impl.epoch.fetch_add(1, std::memory_order_release);
  }
  impl.wake.notify_all();
  impl.work(0);
  for (int spin = 0; impl.busy.load(std::memory_order_acquire) > 0; ++spin) {
    if (spin < kSpins) _mm_pause();
    else std::this_thread::yield();
  }
  impl.running = false;
  if (impl.failure) std::rethrow_exception(std::exchange(impl.failure, nullptr));
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void flush_denormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _mm_setcsr(_mm_getcsr() | 0x0040);  // denormals are zero
}

}  // namespace weft
