#include "core/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/rng.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPoolIsTheHeap = true;  // see Pool::allocate
#else
constexpr bool kPoolIsTheHeap = false;
#endif

namespace weft::test {
namespace {

TEST(Ledger, KeepsLiveAndPeakByLabelAndInTotal) {
  Ledger ledger;
  ledger.add(Label::kActivations, 100);
  ledger.add(Label::kScratch, 50);
  ledger.add(Label::kActivations, -60);
  ledger.add(Label::kActivations, 10);
  EXPECT_EQ(ledger.of(Label::kActivations).live, 50);
  EXPECT_EQ(ledger.of(Label::kActivations).peak, 100);
  EXPECT_EQ(ledger.of(Label::kScratch).peak, 50);
  EXPECT_EQ(ledger.of(Label::kGradients).peak, 0);
  EXPECT_EQ(ledger.total().live, 100);
  EXPECT_EQ(ledger.total().peak, 150);  // not the sum of the labels' peaks in general
}

TEST(Ledger, StartsPeaksAgainFromWhatIsLive) {
  Ledger ledger;
  ledger.add(Label::kData, 100);
  ledger.add(Label::kData, -70);
  ledger.restart_peaks();
  EXPECT_EQ(ledger.of(Label::kData).peak, 30);
  EXPECT_EQ(ledger.total().peak, 30);
}

TEST(Ledger, NamesEveryLabelDifferently) {
  std::map<std::string, int> seen;
  for (int i = 0; i < static_cast<int>(Label::kCount); ++i) {
    EXPECT_EQ(seen[std::string(name_of(static_cast<Label>(i)))]++, 0) << i;
  }
}

TEST(Pool, HandsOutAlignedBlocksAndCountsThem) {
  Ledger ledger;
  Pool pool(ledger);
  for (const int64_t bytes : {0, 1, 63, 64, 65, 1000}) {
    const auto block = pool.allocate(bytes, Label::kActivations);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0u);
    const int64_t rounded = std::max<int64_t>(64, (bytes + 63) / 64 * 64);
    EXPECT_EQ(ledger.of(Label::kActivations).live, rounded);
    EXPECT_GE(rounded, bytes);
  }
  EXPECT_EQ(ledger.total().live, 0);
  EXPECT_THROW(pool.allocate(-1, Label::kActivations), Error);
}

TEST(Pool, RunsTheSecondStepInTheMemoryOfTheFirst) {
  if (kPoolIsTheHeap) GTEST_SKIP() << "under a sanitizer the pool is the heap";
  Ledger ledger;
  Pool pool(ledger);
  const auto step = [&] {
    std::vector<std::shared_ptr<void>> blocks;
    for (int i = 0; i < 50; ++i) blocks.push_back(pool.allocate(1 << 20, Label::kActivations));
    for (size_t i = 0; i < blocks.size(); i += 2) blocks[i].reset();  // holes, then the rest
  };
  step();
  const int64_t reserved = pool.reserved();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(pool.reserved(), reserved);
  // Neighbours were merged: all memory is one block again.
  const auto whole = pool.allocate(reserved, Label::kActivations);
  EXPECT_EQ(pool.reserved(), reserved);
}

// What is free before the end of the memory is used when it grows: blocks that double in size, each
// freed before the next, never take more than the largest, and a bit for growing in large pieces.
TEST(Pool, GrowsAtItsEnd) {
  if (kPoolIsTheHeap) GTEST_SKIP() << "under a sanitizer the pool is the heap";
  Ledger ledger;
  Pool pool(ledger);
  for (int64_t megabytes = 1; megabytes <= 512; megabytes *= 2) {
    const int64_t bytes = (megabytes << 20) + 1;
    const auto block = pool.allocate(bytes, Label::kScratch);
    static_cast<char*>(block.get())[bytes - 1] = 1;
    EXPECT_GE(pool.reserved(), bytes);
    EXPECT_LE(pool.reserved(), bytes + (int64_t{32} << 20));
  }
}

TEST(Pool, SaysSoWhenTheSystemHasNoMoreMemory) {
  if (kPoolIsTheHeap) GTEST_SKIP() << "under a sanitizer the pool is the heap";
  Ledger ledger;
  Pool pool(ledger);
  EXPECT_THROW(pool.allocate(int64_t{1} << 56, Label::kScratch), Error);  // beyond any address
  EXPECT_EQ(ledger.total().live, 0);
  EXPECT_NO_THROW(pool.allocate(1, Label::kScratch));
}

// Blocks of random sizes, freed in random order, each filled with its own number: an overlap shows
// as somebody else's number.
void churn(Pool& pool, uint64_t seed) {
  const RandomStream random(seed, "churn");
  struct Block {
    std::shared_ptr<void> bytes;
    size_t size;
    int mark;
  };
  std::vector<Block> blocks;
  for (uint64_t i = 0; i < 3000; ++i) {
    if (!blocks.empty() && random.uniform(3 * i) < 0.5) {
      Block& victim = blocks[random.below(3 * i + 1, blocks.size())];
      const auto* bytes = static_cast<const unsigned char*>(victim.bytes.get());
      for (size_t j = 0; j < victim.size; ++j) ASSERT_EQ(bytes[j], victim.mark) << i;
      std::swap(victim, blocks.back());
      blocks.pop_back();
    } else {
      const size_t size = random.below(3 * i + 2, 5000);
      blocks.push_back({pool.allocate(static_cast<int64_t>(size), Label::kScratch), size,
                        static_cast<int>(i % 251)});
      std::memset(blocks.back().bytes.get(), blocks.back().mark, size);
    }
  }
}

TEST(Pool, NeverHandsOutTheSameByteTwice) {
  Ledger ledger;
  {
    Pool pool(ledger);
    churn(pool, 1);
  }
  EXPECT_EQ(ledger.total().live, 0);
}

TEST(Pool, ServesSeveralThreadsAtOnce) {
  Ledger ledger;
  Pool pool(ledger);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) threads.emplace_back([&pool, t] { churn(pool, t); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.total().live, 0);
}

TEST(Arena, IsZeroedAndCounted) {
  Ledger ledger;
  {
    const Arena arena(ledger, Label::kMoments, 5000);
    EXPECT_GE(arena.bytes(), 5000);
    EXPECT_EQ(ledger.of(Label::kMoments).live, arena.bytes());
    const auto* bytes = static_cast<const char*>(arena.data());
    for (int64_t i = 0; i < arena.bytes(); ++i) ASSERT_EQ(bytes[i], 0) << i;
  }
  EXPECT_EQ(ledger.of(Label::kMoments).live, 0);
}

TEST(Arena, MovesWithoutBeingCountedTwice) {
  Ledger ledger;
  {
    Arena a(ledger, Label::kMoments, 100);
    Arena b = std::move(a);
    Arena c(ledger, Label::kGradients, 100);
    c = std::move(b);
    EXPECT_NE(c.data(), nullptr);
    EXPECT_EQ(ledger.of(Label::kMoments).live, c.bytes());
  }
  EXPECT_EQ(ledger.total().live, 0);
}

TEST(Arena, OfNothingIsStillValid) {
  Ledger ledger;
  const Arena arena(ledger, Label::kParameters, 0);
  EXPECT_NE(arena.data(), nullptr);
}

}  // namespace
}  // namespace weft::test
