#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace weft {

enum class DType : uint8_t { kF32, kBF16, kI32, kI64, kF64 };

constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::kBF16: return 2;
    case DType::kI64:
    case DType::kF64: return 8;
    default: return 4;
  }
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    default: return "f64";
  }
}

// The upper half of an f32: same exponent range, 8 bits of precision. Stored, never computed with.
struct bf16 {
  uint16_t bits;
  bool operator==(const bf16&) const = default;
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Round to nearest, ties to even; NaN stays NaN.
constexpr bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}

}  // namespace weft
