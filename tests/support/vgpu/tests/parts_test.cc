// Parts of the virtual GPU by themselves: what orders threads, which addresses are allocated, which
// images of a program run where.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/vgpu/check/allocations.h"
#include "tests/support/vgpu/check/thread_races.h"
#include "tests/support/vgpu/host/fat_binary.h"
#include "tests/support/vgpu/host/memory.h"
#include "tests/support/vgpu/host/vector_clock.h"

namespace vgpu {
namespace {

using simt::Access;
using Memory = ThreadRaces::Memory;

// Two bytes of shared memory, and the threads of one block of 64.
class SharedHalf {
 public:
  SharedHalf() {
    races_.begin_kernel({1, 64});
    races_.begin_block(0);
  }
  template <Access kind>
  bool conflict(unsigned thread) {
    races_.switch_to(thread);
    const bool found = races_.conflicts<Memory::kShared, kind>(half_);
    races_.remember<Memory::kShared, kind>(half_, false);
    return found;
  }
  bool read(unsigned thread) { return conflict<Access::kRead>(thread); }
  bool write(unsigned thread) { return conflict<Access::kWrite>(thread); }
  bool update(unsigned thread) { return conflict<Access::kAtomic>(thread); }
  ThreadRaces races_;
  Half half_{};
};

TEST(VgpuThreads, BarriersOrderABlock) {
  SharedHalf x;
  EXPECT_FALSE(x.write(0));
  EXPECT_FALSE(x.read(0));
  EXPECT_TRUE(x.read(1));
  x.races_.barrier();
  EXPECT_FALSE(x.read(33));
  EXPECT_FALSE(x.read(2));
  EXPECT_TRUE(x.write(2));  // 33 reads too
  x.races_.barrier();
  EXPECT_FALSE(x.write(7));
}

TEST(VgpuThreads, WarpBarriersOrderTheirLanesOnly) {
  SharedHalf x;
  EXPECT_FALSE(x.write(3));
  x.races_.sync_lanes(0, 0x0000ffffu);
  EXPECT_FALSE(x.read(5));
  EXPECT_TRUE(x.read(20));  // not in the mask
  x.races_.sync_lanes(0, 0xffff0000u);
  EXPECT_TRUE(x.write(21));  // lane 5 read, and lane 20 orders nothing of it
  SharedHalf y;
  EXPECT_FALSE(y.write(3));
  y.races_.sync_lanes(0, 0x0000ffffu);
  y.races_.sync_lanes(0, 0x00018000u);  // by way of lane 15
  EXPECT_FALSE(y.read(16));
  EXPECT_TRUE(y.read(17));
}

TEST(VgpuThreads, AtomicsConflictWithPlainAccessesAlone) {
  SharedHalf x;
  EXPECT_FALSE(x.update(0));
  EXPECT_FALSE(x.update(40));
  EXPECT_TRUE(x.read(1));
}

TEST(VgpuThreads, EveryBlockHasNewSharedMemory) {
  SharedHalf x;
  EXPECT_FALSE(x.write(0));
  EXPECT_TRUE(x.races_.written_in_this_block(x.half_));
  x.races_.begin_block(1);
  EXPECT_FALSE(x.races_.written_in_this_block(x.half_));
  EXPECT_FALSE(x.write(1));
}

TEST(VgpuThreads, BlocksHaveNoOrderInGlobalMemory) {
  ThreadRaces races;
  Half half{};
  races.begin_kernel({3, 32});
  for (unsigned block = 0; block < 2; ++block) {
    races.begin_block(block);
    races.switch_to(0);
    EXPECT_FALSE((races.conflicts<Memory::kGlobal, Access::kRead>(half)));
    races.remember<Memory::kGlobal, Access::kRead>(half, false);
  }
  EXPECT_TRUE((races.conflicts<Memory::kGlobal, Access::kWrite>(half)));  // block 0 reads it
  EXPECT_EQ(races.readers(half), "threads of several blocks");
}

// Random allocations and releases against a map of single bytes.
TEST(VgpuMemory, HeapNeverHandsOutAByteTwice) {
  constexpr uint64_t kBase = 1 << 20, kCapacity = 64 << 10;
  Heap heap(kBase, 2 * kCapacity, kCapacity, 512);
  std::mt19937 random(3);
  std::map<uint64_t, uint64_t> live;
  uint64_t used = 0;
  for (uint32_t i = 0; i < 3000; ++i) {
    if (random() % 2 == 0 || live.empty()) {
      const uint64_t bytes = 1 + random() % 5000;
      const auto at = heap.allocate(bytes, i, "test");
      const uint64_t counted = (bytes + 511) / 512 * 512;
      if (!at) {
        EXPECT_GT(used + counted + 16384, kCapacity) << "refused although there was room";
        continue;
      }
      EXPECT_EQ(*at % 512, 0u);
      const auto next = live.upper_bound(*at);
      EXPECT_TRUE(next == live.end() || *at + bytes < next->first);
      EXPECT_TRUE(next == live.begin() || *at > std::prev(next)->first + std::prev(next)->second);
      live[*at] = bytes;
      used += counted;
    } else {
      auto victim = live.begin();
      std::advance(victim, random() % live.size());
      used -= (victim->second + 511) / 512 * 512;
      heap.release(victim->first);
      live.erase(victim);
    }
    ASSERT_EQ(heap.used(), used);
    ASSERT_LE(used, kCapacity);
  }
}

TEST(VgpuMemory, AllocationsEndAtTheirLastByte) {
  constexpr uint64_t kBase = uint64_t{1} << 40;
  Allocations all(kBase, 1 << 20);
  AllocationBody a{kBase + 512, 1000, 7, "cudaMalloc in test"};
  all.add(a);
  EXPECT_TRUE(all.live(512, 4) && all.live(512 + 996, 4) && all.live(512 + 510, 4));
  EXPECT_FALSE(all.live(508, 4) || all.live(512 + 997, 4) || all.live(512 + 1000, 1));
  EXPECT_TRUE(all.live_range(512, 1000));
  EXPECT_FALSE(all.live_range(512, 1001));
  EXPECT_EQ(all.describe(kBase + 512 + 12),
            "byte 12 of the 1000 bytes of allocation 7 (cudaMalloc in test)");
  all.remove(a.at, "cudaFree in test");
  EXPECT_FALSE(all.live(512, 4));
  EXPECT_NE(all.describe(a.at).find("freed by cudaFree in test"), std::string::npos);
}

TEST(VgpuOrder, ClocksCoverWhatTheyJoined) {
  VectorClock a, b;
  a.join(Ticket{3, 5});
  b.join(Ticket{1, 2});
  b.join(a);
  EXPECT_TRUE(b.covers({3, 5}) && b.covers({3, 4}) && b.covers({1, 2}) && b.covers({9, 0}));
  EXPECT_FALSE(b.covers({3, 6}) || b.covers({2, 1}) || a.covers({1, 1}));
}

TEST(VgpuArchitecture, PtxRunsOnNewerMachineCodeOnTheSameMajor) {
  FatBinary b;
  EXPECT_FALSE(b.runs_on(90));
  b.images = {{false, 86}};
  EXPECT_TRUE(b.runs_on(86) && b.runs_on(89));
  EXPECT_FALSE(b.runs_on(80) || b.runs_on(90));
  b.images = {{true, 80}};
  EXPECT_TRUE(b.runs_on(80) && b.runs_on(120));
}

}  // namespace
}  // namespace vgpu
