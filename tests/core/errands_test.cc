// Errands are called by loops of the thread that created them, as long as they exist.
#include "core/threads/errands.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "core/threads/thread_pool.h"

namespace weft::test {
namespace {

thread_local int pokes = 0;
void poke() { ++pokes; }

// Long enough for several rounds.
void loop(ThreadPool& pool) {
  pool.run(20, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
}

TEST(Errands, AreRunBetweenTheTasksOfLoops) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    pokes = 0;
    loop(pool);
    EXPECT_EQ(pokes, 0);
    std::optional<Errand> one(std::in_place, poke), two(std::in_place, poke);
    loop(pool);
    EXPECT_GT(pokes, 0);
    EXPECT_LE(pokes, 21) << "once for both, before each task and behind the last";
    one.reset();
    pokes = 0;
    loop(pool);
    EXPECT_GT(pokes, 0) << "one of two is left";
    two.reset();
    pokes = 0;
    loop(pool);
    EXPECT_EQ(pokes, 0);
  }
}

TEST(Errands, AreNobodyElses) {
  pokes = 0;
  const Errand mine(poke);
  std::thread([] {
    ThreadPool pool(1);
    loop(pool);
    EXPECT_EQ(pokes, 0);
  }).join();
  EXPECT_EQ(pokes, 0);
}

TEST(Errands, FailLikeTasks) {
  ThreadPool pool(2);
  const Errand failing(+[] { throw 7; });
  EXPECT_THROW(loop(pool), int);
}

}  // namespace
}  // namespace weft::test
