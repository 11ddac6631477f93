#include "core/threads/thread_pool.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/threads/errands.h"

namespace weft {
namespace {

// Number of polls of an idle worker before it sleeps. Loops of one training step follow each other
// within microseconds; a sleeping worker costs about 50 of them to wake.
constexpr int kSpins = 4000;

}  // namespace

struct ThreadPool::Impl {
  // One loop: every thread inside takes the next index until none is left. Workers enter through
  // `gate`: the number of the loop in the upper half, then a bit that says the loop is open, then
  // how many workers are inside. The caller closes the gate when no index is left and waits for
  // those inside, so no thread touches the task of a loop that returned, and a worker that wakes up
  // too late for a loop delays no other thread. Fields below the gate are written only while it is
  // closed and no worker is inside.
  static constexpr uint64_t kLoop = uint64_t{1} << 32, kOpen = uint64_t{1} << 31;
  std::atomic<uint64_t> gate{0};
  std::atomic<int64_t> next{0};
  int64_t count = 0;
  Erased call = nullptr;
  void* task = nullptr;
  bool running = false;

  std::mutex mutex;
  std::condition_variable wake;
  std::exception_ptr failure;
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;

  // Also runs when the constructor fails half-way because the system refuses one more thread.
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void work(int thread) {
    try {
      for (;;) {
        if (thread == 0) run_errands();
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

  void open_gate() {
    {
      // Under the lock, so that a worker about to sleep cannot miss it.
      const std::lock_guard lock(mutex);
      const uint64_t loop = gate.load(std::memory_order_relaxed) / kLoop + 1;
      gate.store(loop * kLoop | kOpen, std::memory_order_release);
    }
    wake.notify_all();
  }

  void close_gate() {
    gate.fetch_and(~kOpen, std::memory_order_relaxed);
    for (int spin = 0; gate.load(std::memory_order_acquire) % kOpen > 0;) {
      if (spin < kSpins) {
        ++spin;
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  // Waits for a loop that is not `seen` and tries to enter it; false when it was over already.
  bool enter(uint64_t& seen) {
    const auto news = [&] {
      return gate.load(std::memory_order_relaxed) / kLoop != seen || stop.load();
    };
    for (int spin = 0; !news(); ++spin) {
      if (spin < kSpins) {
        _mm_pause();
      } else {
        std::unique_lock lock(mutex);
        wake.wait(lock, news);
      }
    }
    uint64_t now = gate.load(std::memory_order_relaxed);
    while ((now & kOpen) != 0) {
      seen = now / kLoop;
      if (gate.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
        return true;
      }
    }
    seen = now / kLoop;
    return false;
  }

  void worker(int thread) {
    flush_denormals();
    for (uint64_t seen = 0; !stop.load();) {
      if (!enter(seen)) continue;
      work(thread);
      gate.fetch_sub(1, std::memory_order_release);
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

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::run_erased(int64_t count, Erased call, void* task) {
  if (count <= 0) return;
  Impl& impl = *impl_;
  // Checked for every size, so that one thread and one task reveal the mistake too.
  WEFT_CHECK(!impl.running, "a task started a loop on the pool that runs it");
  impl.running = true;
  impl.count = count;
  impl.call = call;
  impl.task = task;
  impl.next.store(0, std::memory_order_relaxed);
  const bool alone = count == 1 || impl.workers.empty();
  if (!alone) impl.open_gate();
  impl.work(0);
  if (!alone) impl.close_gate();
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
