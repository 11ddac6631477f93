#include "core/host_access.h"
#include "core/memory/arena.h"
#include "core/memory/host_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"

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

// Growth uses the free block at the end: blocks that double in size, each freed before the next,
// never take more than the largest, plus the granularity of growth.
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
// as another block's number.
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
    const Tensor all = arena.tensor(0, {arena.bytes() / 4}, DType::kF32);
    for (const float x : host_span<float>(all)) ASSERT_EQ(x, 0.0f);
    EXPECT_THROW(arena.tensor(4, all.shape(), DType::kF32), Error);
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
    EXPECT_TRUE(c.tensor(0, {100}, DType::kF32).defined());
    EXPECT_EQ(ledger.of(Label::kMoments).live, c.bytes());
  }
  EXPECT_EQ(ledger.total().live, 0);
}

TEST(Arena, OfNothingIsStillValid) {
  Ledger ledger;
  const Arena arena(ledger, Label::kParameters, 0);
  EXPECT_TRUE(arena.tensor(0, {0}, DType::kF32).defined());
}

TEST(AddressBacking, PlacesAndCountsAsRealMemoryDoes) {
  Ledger ledgers[2];
  AddressBacking addresses;
  Pool real(ledgers[0]), rehearsed(ledgers[1], addresses);
  std::vector<std::shared_ptr<void>> blocks[2];
  for (const int64_t bytes : std::initializer_list<int64_t>{100, int64_t{1} << 40, 1 << 20, 7}) {
    if (bytes < int64_t{1} << 30) blocks[0].push_back(real.allocate(bytes, Label::kScratch));
    blocks[1].push_back(rehearsed.allocate(bytes, Label::kScratch));  // more than any machine has
  }
  EXPECT_EQ(ledgers[1].total().live - (int64_t{1} << 40), ledgers[0].total().live);
}

TEST(AddressBacking, CopiesNothingFromItsOwnAddressesOnly) {
  Ledger ledgers[2];
  AddressBacking addresses;
  Pool numbers(ledgers[0], addresses), indices(ledgers[1]);
  ThreadPool threads(1);
  const Exec exec{.threads = threads, .pool = numbers, .host_pool = &indices};
  const Tensor index = exec.host({2}, DType::kI64, Label::kScratch);
  host<int64_t>(index)[0] = 3, host<int64_t>(index)[1] = 7;
  EXPECT_EQ(download<int64_t>(exec, index), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(download<float>(exec, exec.empty({2})), (std::vector<float>{0, 0}));
}

TEST(GuardedBackingDeathTest, EndsHostCodeThatDidNotOpenIt) {
  GuardedBacking guarded;
  Ledger ledger;
  Pool pool(ledger, guarded);
  const Tensor t = Tensor::zeros(pool, {1000}, DType::kF32);
  const Arena arena(ledger, Label::kMoments, 4000, guarded);
  const Tensor moments = arena.tensor(0, {1000}, DType::kF32);
  {
    const HostScope open(guarded);
    {
      const HostScope again(guarded);
      host<float>(t)[3] = 5.0f;
    }
    EXPECT_EQ(host<float>(t)[3] + host<float>(moments)[7], 5.0f);
  }
  EXPECT_DEATH(host<float>(t)[3] = 1.0f, "");
  EXPECT_DEATH(host<float>(moments)[7] = 1.0f, "");
}

TEST(HostAccess, RefusesWhatIsOnAnotherDeviceOrOfAnotherType) {
  const Device gpu{Device::Kind::kCuda, 1};
  float number = 0;
  const Tensor there = Tensor::borrow(&number, {3, 5}, DType::kF32, gpu);
  EXPECT_EQ(there.view().row_range(1, 2).device, gpu);
  EXPECT_EQ(there.reshaped({15}).slice(2, 4).device(), gpu);
  EXPECT_THROW(
      {
        try {
          host<float>(there);
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("[3, 5]"), std::string::npos) << error.what();
          throw;
        }
      },
      Error);
  EXPECT_THROW(host<int32_t>(Tensor::borrow(&number, {1}, DType::kF32)), Error);
}

TEST(HostTable, IsReadByHostAndKernelsAlike) {
  Ledger ledger;
  Pool pool(ledger);
  ThreadPool threads(1);
  Exec exec{threads, pool};
  const HostTable<int32_t> table({0, 3, 7}), copy = table;
  const ConstView view = copy.view(exec);
  EXPECT_EQ(view.shape, Shape({3}));
  EXPECT_EQ(host<int32_t>(view)[2], 7);
  EXPECT_EQ(view.data, table.view(exec).data);
  EXPECT_EQ(ledger.total().live, 0);
}

}  // namespace
}  // namespace weft::test
