#include "core/base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "core/base/error.h"

namespace weft::test {
namespace {

using Words = std::array<uint32_t, 4>;

// Philox 4x32-10 as printed in Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
Words philox(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const uint64_t product0 = 0xD2511F53ull * counter[0], product1 = 0xCD9E8D57ull * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
  }
  return counter;
}

TEST(RandomStream, ReferencePhiloxGivesThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0),
            (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0xa4093822u, 0x299f31d0u),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

// The key is splitmix64 of the seed (0 gives 0xe220a8397b1dcdaf, its published first output), the
// upper counter words splitmix64 of the FNV-1a hash of the name. For the empty name the hash is the
// offset basis 0xcbf29ce484222325.
TEST(RandomStream, IsPhiloxOverIndexNameAndSeed) {
  uint64_t x = 0xcbf29ce484222325ull + 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const RandomStream stream(0, "");
  for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    const Words words = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32)},
                               0x7b1dcdafu, 0xe220a839u);
    EXPECT_EQ(stream.bits(index), uint64_t{words[1]} << 32 | words[0]);
  }
}

TEST(RandomStream, DependsOnSeedNameAndIndexAlone) {
  const RandomStream a(1, "block.0.weight");
  EXPECT_EQ(a.bits(5), RandomStream(1, "block.0.weight").bits(5));
  EXPECT_NE(a.bits(5), a.bits(6));
  EXPECT_NE(a.bits(5), RandomStream(2, "block.0.weight").bits(5));
  EXPECT_NE(a.bits(5), RandomStream(1, "block.1.weight").bits(5));
}

TEST(RandomStream, GivesNoTwoNamesTheSameNumbers) {
  std::set<uint64_t> seen;
  for (int name = 0; name < 100; ++name) {
    const RandomStream stream(1, fmt::format("block.{}", name));
    for (uint64_t i = 0; i < 100; ++i) seen.insert(stream.bits(i));
  }
  EXPECT_EQ(seen.size(), 10000u);  // a clash of 64 random bits among them has probability 3e-12
}

// Bounds below are five standard errors of the estimate: one run in 1.7 million would fail by
// chance, and the numbers are the same in every run.
constexpr int kCount = 100000;

TEST(RandomStream, UniformHasTheMomentsOfTheUnitInterval) {
  const RandomStream stream(3, "uniform");
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = stream.uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kCount, 1.0 / 2, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kCount));
}

TEST(RandomStream, NormalHasTheMomentsOfTheBellCurve) {
  const RandomStream stream(3, "normal");
  std::array<double, 4> moments{};
  double neighbours = 0, previous = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = stream.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    for (size_t power = 0; power < 4; ++power) {
      moments[power] += std::pow(x, static_cast<double>(power + 1)) / kCount;
    }
    neighbours += x * previous / kCount;
    previous = x;
  }
  const double unit = 5 / std::sqrt(kCount);
  EXPECT_NEAR(moments[0], 0, unit);
  EXPECT_NEAR(moments[1], 1, unit * std::sqrt(2.0));   // variance of x^2 is 2
  EXPECT_NEAR(moments[2], 0, unit * std::sqrt(15.0));  // of x^3: 15
  EXPECT_NEAR(moments[3], 3, unit * std::sqrt(96.0));  // of x^4: 105 - 9
  EXPECT_NEAR(neighbours, 0, unit);
}

TEST(RandomStream, BelowIsEvenAndInRange) {
  const RandomStream stream(3, "below");
  std::array<int, 7> counts{};
  for (uint64_t i = 0; i < 70000; ++i) {
    const uint64_t x = stream.below(i, 7);
    ASSERT_LT(x, 7u);
    ++counts[x];
  }
  const double deviation = std::sqrt(70000 * (1.0 / 7) * (6.0 / 7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * deviation);
  EXPECT_EQ(stream.below(0, 1), 0u);
}

}  // namespace
}  // namespace weft::test
