#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace weft {

// A fixed set of threads for data-parallel loops. The caller is one of them. Every thread has
// flush-to-zero and denormals-are-zero set: subnormal operands cost a factor of two in the gates.
//
// Results never depend on the number of threads: a task is a fixed piece of work on any thread, and
// the caller adds up sums over tasks in task order.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // including the caller; the caller's thread must use the pool
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Runs task(i) for i in [0, count), each exactly once, and returns when all are done. An
  // exception of a task is rethrown here. Not reentrant: a task must not start a loop on the same
  // pool.
  template <class Task>
  void run(int64_t count, Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    run_erased(
        count, [](void* t, int64_t i, int) { (*static_cast<Plain*>(t))(i); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

  // Also passes the index of the thread, 0 <= thread < size(), for scratch memory per thread.
  template <class Task>
  void run_on(int64_t count, Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    run_erased(
        count, [](void* t, int64_t i, int thread) { (*static_cast<Plain*>(t))(i, thread); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Erased = void (*)(void* task, int64_t index, int thread);
  void run_erased(int64_t count, Erased call, void* task);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Cores this process may use (its affinity mask).
int available_cores();

// Sets flush-to-zero and denormals-are-zero on the calling thread.
void flush_denormals();

}  // namespace weft
