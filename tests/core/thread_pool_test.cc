#include "core/threads/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace weft::test {
namespace {

class ThreadPoolOf : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolOf, RunsEveryTaskExactlyOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const int64_t count : {0, 1, 2, 3, 7, 64, 1009}) {
    std::vector<int> runs(static_cast<size_t>(count), 0);
    pool.run(count, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; })) << count;
  }
}

// Each loop has its own task on its own piece of stack: a worker late for loop n that took an index
// of loop n + 1, or a caller that returned under a worker, would count wrongly or touch a dead
// frame.
TEST_P(ThreadPoolOf, KeepsManyTinyLoopsApart) {
  ThreadPool pool(GetParam());
  for (int64_t loop = 0; loop < 5000; ++loop) {
    const int64_t count = 1 + loop % 17;
    std::array<int64_t, 17> out;
    out.fill(-1);
    pool.run(count, [&](int64_t i) {
      if (i % 8 == 0 && loop % 64 == 0) std::this_thread::yield();  // lets other threads run
      out[static_cast<size_t>(i)] = loop + i;
    });
    for (int64_t i = 0; i < 17; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(i)], i < count ? loop + i : -1) << loop;
    }
  }
}

TEST_P(ThreadPoolOf, WakesWorkersThatWentToSleep) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far longer than the spinning
    std::atomic<int> done{0};
    pool.run(100, [&](int64_t) { ++done; });
    EXPECT_EQ(done, 100);
  }
}

TEST_P(ThreadPoolOf, TellsTasksWhichThreadRunsThem) {
  ThreadPool pool(GetParam());
  // Scratch per thread, unsynchronized on purpose: two threads with one number would be a data
  // race.
  std::vector<int64_t> sums(static_cast<size_t>(pool.size()), 0);
  pool.run_on(1000, [&](int64_t i, int thread) { sums[static_cast<size_t>(thread)] += i; });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 499500);
}

TEST_P(ThreadPoolOf, RethrowsATasksExceptionAndStaysUsable) {
  ThreadPool pool(GetParam());
  for (int64_t loop = 0; loop < 500; ++loop) {
    const int64_t bad = loop % 37;
    try {
      pool.run(37, [&](int64_t i) {
        if (i == bad) throw std::runtime_error(fmt::format("task {}", i));
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), fmt::format("task {}", bad));
    }
    std::atomic<int> done{0};
    pool.run(10, [&](int64_t) { ++done; });
    ASSERT_EQ(done, 10);
  }
}

TEST_P(ThreadPoolOf, RethrowsOneExceptionWhenEveryTaskThrows) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 200; ++loop) {
    EXPECT_THROW(pool.run(8, [](int64_t) { throw std::runtime_error("each"); }),
                 std::runtime_error);
  }
  EXPECT_NO_THROW(pool.run(8, [](int64_t) {}));
}

TEST_P(ThreadPoolOf, RefusesALoopInsideALoop) {
  ThreadPool pool(GetParam());
  for (const int64_t outer : {1, 4}) {
    for (const int64_t inner : {1, 4}) {
      EXPECT_THROW(pool.run(outer, [&](int64_t) { pool.run(inner, [](int64_t) {}); }), Error);
    }
  }
  std::atomic<int> done{0};
  pool.run(4, [&](int64_t) { ++done; });
  EXPECT_EQ(done, 4);
}

TEST_P(ThreadPoolOf, FlushesDenormalsOnEveryThread) {
  ThreadPool pool(GetParam());
  std::vector<int> kept(64, 0);
  pool.run(64, [&](int64_t i) {
    volatile float tiny = 1e-30f, denormal = 1e-40f;
    const float out = tiny * 1e-10f, in = denormal * 1e10f;  // flushed result, operand read as zero
    kept[static_cast<size_t>(i)] = (out != 0) + (in != 0);
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // let every thread take some
  });
  EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), 0), 0);
}

TEST_P(ThreadPoolOf, CanBeBuiltAndDestroyedWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(GetParam());
}

// More threads than cores on purpose (8): workers are then late all the time.
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, testing::Values(1, 2, 3, 8),
                         testing::PrintToStringParamName());

TEST(ThreadPool, UsesItsThreads) {
  ThreadPool pool(3);
  std::vector<std::thread::id> ids(3);
  std::atomic<int> arrived{0};
  pool.run_on(3, [&](int64_t, int thread) {  // each task waits for the others: needs three threads
    ids[static_cast<size_t>(thread)] = std::this_thread::get_id();
    for (++arrived; arrived < 3;) std::this_thread::yield();
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
}

TEST(ThreadPool, WorksBesideAnotherPool) {  // ranks as threads have separate pools
  std::vector<std::thread> ranks;
  std::atomic<int64_t> sum{0};
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&] {
      ThreadPool pool(2);
      for (int loop = 0; loop < 200; ++loop) pool.run(5, [&](int64_t i) { sum += i; });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(sum, 4 * 200 * 10);
}

TEST(ThreadPool, RefusesZeroThreads) { EXPECT_THROW(ThreadPool(0), Error); }

TEST(ThreadPool, ThereIsAtLeastOneCore) { EXPECT_GE(available_cores(), 1); }

}  // namespace
}  // namespace weft::test
