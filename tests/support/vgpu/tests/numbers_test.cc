// Numbers of products and sums, against NVIDIA's own conversions on the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/support/vgpu/device/numbers.h"

namespace vgpu {
namespace {

double load(NumberType type, uint16_t bits) {
  return load_number(type, reinterpret_cast<uint64_t>(&bits), 0);
}
uint16_t store(NumberType type, double x) {
  uint16_t bits = 0;
  store_number(type, reinterpret_cast<uint64_t>(&bits), 0, x);
  return bits;
}

template <class T>
double nvidia(uint16_t bits) {
  T x;
  std::memcpy(static_cast<void*>(&x), &bits, sizeof x);
  return static_cast<double>(static_cast<float>(x));
}
template <class T>
uint16_t to_nvidia(float x) {
  const T rounded(x);
  uint16_t bits = 0;
  std::memcpy(&bits, &rounded, sizeof rounded);
  return bits;
}

template <class T>
void check_all(NumberType type, int codes) {
  for (int code = 0; code < codes; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const double want = nvidia<T>(bits), got = load(type, bits);
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << code;
    if (!std::isfinite(want)) continue;
    ASSERT_EQ(store(type, want), bits) << code;
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-30, 20), fraction(-2, 2);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::ldexp(fraction(random), static_cast<int>(exponent(random)));
    ASSERT_EQ(store(type, x), to_nvidia<T>(x)) << x;
  }
}

TEST(VgpuNumbers, AreThoseOfNvidia) {
  check_all<__half>(NumberType::kF16, 1 << 16);
  check_all<__nv_bfloat16>(NumberType::kBf16, 1 << 16);
  check_all<__nv_fp8_e4m3>(NumberType::kE4m3, 1 << 8);
  check_all<__nv_fp8_e5m2>(NumberType::kE5m2, 1 << 8);
}

TEST(VgpuNumbers, RoundToTf32AwayFromZero) {
  EXPECT_EQ(rounded_to_tf32(1 + 1.0 / 2048), 1 + 1.0 / 1024);
  EXPECT_EQ(rounded_to_tf32(-1 - 1.0 / 2048), -1 - 1.0 / 1024);
  EXPECT_EQ(rounded_to_tf32(1 + 1.0 / 4096), 1);
}

}  // namespace
}  // namespace vgpu
