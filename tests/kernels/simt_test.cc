// The emulator of CUDA by itself: what tests/support/simt promises to kernels, and what it refuses.
#include "tests/support/simt/cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "tests/support/near.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

constexpr unsigned kAll = 0xffffffffu;
const simt::Order kOrders[] = {simt::Order::kForward, simt::Order::kReverse,
                               simt::Order::kShuffled};

__global__ void reverse_block(const int* from, int* to) {
  __shared__ int held[256];
  const unsigned i = threadIdx.x, first = blockIdx.x * blockDim.x;
  held[i] = from[first + i];
  __syncthreads();
  to[first + i] = held[blockDim.x - 1 - i];
}

TEST(Simt, BlocksShareMemoryAndWaitForEachOther) {
  constexpr unsigned kBlock = 70, kBlocks = 3;  // a warp that is not full
  std::vector<int> from(kBlock * kBlocks), to(from.size());
  std::iota(from.begin(), from.end(), 0);
  for (const simt::Order order : kOrders) {
    simt::WithOrder with(order);
    simt::launch({kBlocks, kBlock}, reverse_block, from.data(), to.data());
    for (unsigned i = 0; i < to.size(); ++i) {
      EXPECT_EQ(to[i], static_cast<int>(i / kBlock * kBlock + kBlock - 1 - i % kBlock));
    }
  }
}

__global__ void write_place(unsigned* to) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  to[block * blockDim.x * blockDim.y * blockDim.z + thread] += block * 1000 + thread;
}

TEST(Simt, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<unsigned> to(2 * 3 * 4 * 5 * 3 * 2);
  simt::launch({{2, 3, 4}, {5, 3, 2}}, write_place, to.data());
  for (unsigned i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], i / 30 * 1000 + i % 30);
}

__global__ void read_shared(float* to) {
  to[threadIdx.x] = (&kernels::cuda::block_memory<float>())[threadIdx.x];
}

TEST(Simt, SharedMemoryBeginsAsNan) {
  std::vector<float> to(8, 0.0f);
  simt::launch({1, 8, 8 * sizeof(float)}, read_shared, to.data());
  for (const float x : to) EXPECT_TRUE(std::isnan(x));
}

__global__ void half_a_barrier() {
  if (threadIdx.x < 33) __syncthreads();
}
constexpr int kHalfBarrierLine = __LINE__ - 2;

__global__ void two_barriers() {
  if (threadIdx.x % 64 < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
constexpr int kTwoBarriersLine = __LINE__ - 5;

TEST(Simt, NamesTheThreadsAndPlacesOfADivergentBarrier) {
  const auto refused = [](void (*kernel)()) {
    return message_of<simt::Error>([&] { simt::launch({1, 64}, kernel); });
  };
  EXPECT_EQ(refused(half_a_barrier),
            fmt::format("block (0, 0, 0) cannot go on: threads 0-32 wait at __syncthreads "
                        "(simt_test.cc:{}); threads 33-63 ended",
                        kHalfBarrierLine));
  EXPECT_EQ(refused(two_barriers),
            fmt::format("block (0, 0, 0) cannot go on: threads 0-31 wait at __syncthreads "
                        "(simt_test.cc:{}); threads 32-63 wait at __syncthreads (simt_test.cc:{})",
                        kTwoBarriersLine, kTwoBarriersLine + 2));
}

__global__ void shuffles(int* to) {
  const int lane = static_cast<int>(threadIdx.x % 32), x = static_cast<int>(threadIdx.x) * 10;
  int* mine = to + 4 * threadIdx.x;
  mine[0] = __shfl_xor_sync(kAll, x, 5);
  mine[1] = __shfl_up_sync(kAll, x, 3);
  mine[2] = __shfl_down_sync(kAll, x, 7);
  // Two halves of a warp on ways of their own.
  if (lane < 16) {
    mine[3] = __shfl_sync(0x0000ffffu, x, 2);
  } else {
    mine[3] = __shfl_sync(0xffff0000u, x, 31);
  }
}

TEST(Simt, ShufflesMoveNumbersBetweenLanes) {
  std::vector<int> to(4 * 64);
  for (const simt::Order order : kOrders) {
    simt::WithOrder with(order);
    simt::launch({1, 64}, shuffles, to.data());
    for (int i = 0; i < 64; ++i) {
      const int lane = i % 32, warp = i - lane;
      EXPECT_EQ(to[4 * i], 10 * (warp + (lane ^ 5)));
      EXPECT_EQ(to[4 * i + 1], 10 * (warp + (lane < 3 ? lane : lane - 3)));
      EXPECT_EQ(to[4 * i + 2], 10 * (warp + (lane + 7 > 31 ? lane : lane + 7)));
      EXPECT_EQ(to[4 * i + 3], 10 * (warp + (lane < 16 ? 2 : 31)));
    }
  }
}

__global__ void votes(unsigned* to) {
  const unsigned lane = threadIdx.x % 32;
  unsigned* mine = to + 7 * threadIdx.x;
  mine[0] = __ballot_sync(kAll, lane % 3 == 0);
  mine[1] = __any_sync(kAll, threadIdx.x == 40);
  mine[2] = __all_sync(kAll, threadIdx.x < 40);
  mine[3] = __reduce_add_sync(kAll, lane);
  mine[4] = __reduce_max_sync(kAll, lane ^ 5);
  mine[5] = __shfl_xor_sync(kAll, lane, 12, 8);  // 12 leaves a segment of 8 lanes
  mine[6] = __shfl_sync(kAll, lane, 10, 8);      // wraps inside the segment
}

TEST(Simt, LanesVoteAndSumTogether) {
  std::vector<unsigned> to(7 * 64);
  simt::launch({1, 64}, votes, to.data());
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned lane = i % 32, warp = i / 32, first = lane / 8 * 8;
    const std::vector<unsigned> got(&to[7 * i], &to[7 * i] + 7);
    EXPECT_EQ(got, (std::vector<unsigned>{0x49249249, warp == 1, warp == 0, 31 * 16, 31, lane,
                                          first + 2}));
  }
}

__global__ void lonely_shuffle(float* to) {
  if (threadIdx.x != 5) *to = __shfl_xor_sync(kAll, 1.0f, 1);
}
__global__ void shuffle_from_outside(float* to) {
  if (threadIdx.x < 16) *to = __shfl_sync(0x0000ffffu, 1.0f, 20);
}

TEST(Simt, NamesALaneThatMissesAShuffle) {
  float to = 0;
  const std::string missing = message_of<simt::Error>([&] {
    simt::launch({1, 32}, lonely_shuffle, &to);
  });
  EXPECT_NE(missing.find("threads 0-4 wait at __shfl_xor_sync"), std::string::npos) << missing;
  EXPECT_NE(missing.find("for lanes 0xffffffff; threads 5-5 ended"), std::string::npos) << missing;
  const std::string outside = message_of<simt::Error>([&] {
    simt::launch({1, 32}, shuffle_from_outside, &to);
  });
  EXPECT_NE(outside.find("a lane that does not take part"), std::string::npos) << outside;
}

__global__ void histogram(const int* from, int count, int* bins, float* sum, int* most) {
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += stride) {
    atomicAdd(bins + from[i], 1);
    atomicAdd(sum, static_cast<float>(from[i]));
    atomicMax(most, from[i]);
    int seen = 0;  // counts once more, as locks are built
    while (atomicCAS(bins + 7, seen, seen + 1) != seen) ++seen;
  }
}

TEST(Simt, AtomicsLoseNothing) {
  std::vector<int> from(1000), bins(8);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i * i % 7);
  float sum = 0;
  int most = 0;
  simt::launch({3, 64}, histogram, from.data(), 1000, bins.data(), &sum, &most);
  std::vector<int> want(8);
  for (const int x : from) ++want[x];
  want[7] = 1000;
  EXPECT_EQ(bins, want);
  EXPECT_EQ(sum, static_cast<float>(std::accumulate(from.begin(), from.end(), 0)));
  EXPECT_EQ(most, 4);  // of the squares modulo 7: 0, 1, 2, 4
}

__global__ void all_atomics(unsigned* x) {
  const unsigned i = threadIdx.x;
  atomicSub(x, i);
  atomicMin(x + 1, i + 3);
  atomicAnd(x + 2, ~(1u << i));
  atomicOr(x + 3, 1u << i);
  atomicXor(x + 4, 3u << i);
  if (i == 7) x[6] = atomicExch(x + 5, i);
}

TEST(Simt, EveryAtomicDoesWhatItSays) {
  std::vector<unsigned> x{1000, 99, 0xffffffffu, 0, 0, 5, 0};
  simt::launch({1, 16}, all_atomics, x.data());
  EXPECT_EQ(x, (std::vector<unsigned>{1000 - 120, 3, 0xffff0000u, 0xffffu, 0x10001u, 7, 5}));
}

__global__ void note_turn(unsigned* turn, unsigned* turns) { turns[blockIdx.x] = (*turn)++; }

TEST(Simt, BlocksRunOnceEachInTheOrderAskedFor) {
  const unsigned kBlocks = 97;
  const auto turns_in = [&](simt::Order order) {
    const simt::WithOrder with(order, 3);
    std::vector<unsigned> turns(kBlocks, kBlocks);
    unsigned turn = 0;
    simt::launch({kBlocks, 1}, note_turn, &turn, turns.data());
    EXPECT_EQ(turn, kBlocks);
    return turns;
  };
  std::vector<unsigned> forward(kBlocks), reverse(kBlocks);
  std::iota(forward.begin(), forward.end(), 0u);
  std::iota(reverse.rbegin(), reverse.rend(), 0u);
  EXPECT_EQ(turns_in(simt::Order::kForward), forward);
  EXPECT_EQ(turns_in(simt::Order::kReverse), reverse);
  std::vector<unsigned> shuffled = turns_in(simt::Order::kShuffled);
  EXPECT_NE(shuffled, forward);
  std::sort(shuffled.begin(), shuffled.end());
  EXPECT_EQ(shuffled, forward);
}

__global__ void race(int* to) {
  __shared__ int held[64];
  held[threadIdx.x] = static_cast<int>(threadIdx.x);
  to[threadIdx.x] = held[(threadIdx.x + 1) % 64] + 1;  // no barrier in between
}

TEST(Simt, ARaceShowsInAnotherOrder) {
  std::vector<int> forward(64), reverse(64);
  simt::launch({1, 64}, race, forward.data());
  simt::WithOrder with(simt::Order::kReverse);
  simt::launch({1, 64}, race, reverse.data());
  EXPECT_NE(forward, reverse);
}

__global__ void throwing() {
  __syncthreads();
  if (threadIdx.x == 40) throw std::runtime_error("from inside");
  __syncthreads();
}

TEST(Simt, ExceptionsLeaveTheLaunch) {
  for (int again = 0; again < 2; ++again) {
    const std::string text = message_of<std::runtime_error>([] {
      simt::launch({1, 64}, throwing);
    });
    EXPECT_EQ(text, "from inside");
  }
  EXPECT_NE(message_of<simt::Error>([] {
              simt::launch({0, 64}, throwing);
            }).find("at least one block"),
            std::string::npos);
}

// A warp multiplies by the letter of the manual: ldmatrix for both factors, stored either way
// round.
struct Product {
  alignas(16) bf16 a[16][16], a_turned[16][16], b[16][8], b_turned[8][16];
  float d[16][8];
};
template <bool turned>
__global__ void multiply_bf16(Product* p) {
  using namespace kernels::cuda;
  const unsigned lane = threadIdx.x, near = lane % 8, high = lane / 8 % 2 * 8, far = lane / 16 * 8;
  uint32_t a[4], b[4];
  if (turned) {
    load_matrices_turned(a, &p->a_turned[near + far][high]);
    load_matrices(b, &p->b_turned[near][high]);  // its last two matrices are not used
  } else {
    load_matrices(a, &p->a[near + high][far]);
    load_matrices_turned(b, &p->b[near + high][0]);
  }
  float d[4] = {1, 1, 1, 1};
  multiply_add_bf16(d, a, b);
  for (unsigned e = 0; e < 4; ++e) p->d[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2] = d[e];
}

TEST(Simt, TensorCoresMultiplyBf16) {
  Product p;
  Numbers want;
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) p.a_turned[k][i] = p.a[i][k] = to_bf16(float(i * 16 + k) / 8 - 9);
    for (int j = 0; j < 8; ++j) p.b_turned[j][i] = p.b[i][j] = to_bf16(float(j * 16 + i) / 4 - 7);
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = 1;
      for (int k = 0; k < 16; ++k) sum += double{to_float(p.a[i][k])} * to_float(p.b[k][j]);
      want.push_back(sum);
    }
  }
  for (const auto kernel : {multiply_bf16<false>, multiply_bf16<true>}) {
    simt::launch({1, 32}, kernel, &p);
    EXPECT_TRUE(Near(Numbers(&p.d[0][0], &p.d[0][0] + 128), want, 16 * 6e-8));
  }
}

struct Product32 {
  float a[16][8], b[8][8], d[16][8];
};
__global__ void multiply_tf32(Product32* p) {
  using namespace kernels::cuda;
  const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
  const float a[4] = {p->a[g][t], p->a[g + 8][t], p->a[g][t + 4], p->a[g + 8][t + 4]};
  const float b[2] = {p->b[t][g], p->b[t + 4][g]};
  float d[4] = {};
  multiply_add_tf32(d, a, b);
  p->d[g][2 * t] = d[0], p->d[g][2 * t + 1] = d[1];
  p->d[g + 8][2 * t] = d[2], p->d[g + 8][2 * t + 1] = d[3];
}

TEST(Simt, TensorCoresSeeTenBitsOfF32) {
  Product32 p;
  Numbers want;
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 8; ++k) p.a[i][k] = float(i * 8 + k) / 8 - 7;
  }
  for (int k = 0; k < 8; ++k) {
    for (int j = 0; j < 8; ++j) p.b[k][j] = float(k * 8 + j) + 1 + 1.0f / 4096;
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = 0;
      for (int k = 0; k < 8; ++k) {
        sum += p.a[i][k] * double(kernels::cuda::to_tf32(p.b[k][j]));
      }
      want.push_back(sum);
    }
  }
  EXPECT_EQ(kernels::cuda::to_tf32(2 + 1.0f / 4096), 2.0f);
  EXPECT_EQ(kernels::cuda::to_tf32(1 + 1.0f / 2048), 1 + 1.0f / 1024);  // ties away from zero
  simt::launch({1, 32}, multiply_tf32, &p);
  EXPECT_TRUE(Near(Numbers(&p.d[0][0], &p.d[0][0] + 128), want, 8 * 6e-8));
}

__global__ void unaligned(const char* from) {
  uint32_t to[4];
  kernels::cuda::load_matrices(to, from + 2);
}

TEST(Simt, RefusesUnalignedRowsOfMatrices) {
  alignas(16) char memory[64] = {};
  EXPECT_NE(message_of<simt::Error>([&] {
              simt::launch({1, 32}, unaligned, static_cast<const char*>(memory));
            }).find("multiple of 16 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::test
