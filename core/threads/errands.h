#pragma once

namespace weft {

// A callback that progresses pending communication. While an Errand exists, the thread that created
// it calls the callback between tasks of the loops that it runs (core/threads/thread_pool.h).
// Created and destroyed by the same thread.
class Errand {
 public:
  using Poke = void (*)();
  explicit Errand(Poke poke);  // called once per round, even if several errands share it
  ~Errand();
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

 private:
  Poke poke_;
};

// Calls the callbacks of this thread, at most once per interval: cheap enough for every task.
void run_errands();

}  // namespace weft
