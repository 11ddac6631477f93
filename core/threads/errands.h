#pragma once

namespace weft {

// Something that moves on only while it is called: messages under way. As long as an Errand lives,
// the thread that made it calls it now and then between the tasks of loops that it runs
// (core/threads/thread_pool.h). Made and unmade by the same thread.
class Errand {
 public:
  using Poke = void (*)();
  explicit Errand(Poke poke);  // called once a round, however many errands have it
  ~Errand();
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

 private:
  Poke poke_;
};

// Calls those of this thread, unless that was just done: cheap enough for every task.
void run_errands();

}  // namespace weft
