#include "tests/support/vgpu/device/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace vgpu {
namespace {

// Floating-point numbers of at most 16 bits: sign, exponent, fraction.
struct Format {
  int exponent_bits, fraction_bits;
  double largest;
  bool saturates;     // else beyond the largest number is infinity
  bool all_ones_nan;  // the only NaN, and there is no infinity (e4m3)

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kF16Format{5, 10, 65504, false, false}, kE4m3Format{4, 3, 448, true, true},
    kE5m2Format{5, 2, 57344, true, false};

double decode(const Format& f, uint32_t bits) {
  const uint32_t fraction = bits & ((1u << f.fraction_bits) - 1);
  const uint32_t exponent = bits >> f.fraction_bits & ((1u << f.exponent_bits) - 1);
  const double sign = (bits >> (f.exponent_bits + f.fraction_bits) & 1) != 0 ? -1 : 1;
  const bool top = exponent == (1u << f.exponent_bits) - 1;
  if (top && f.all_ones_nan && fraction == (1u << f.fraction_bits) - 1) return std::nan("");
  if (top && !f.all_ones_nan) {
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double significand = exponent == 0 ? fraction : fraction + (1u << f.fraction_bits);
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - f.bias() - f.fraction_bits;
  return sign * std::ldexp(significand, power);
}

uint32_t encode(const Format& f, double x) {
  const uint32_t sign = (std::signbit(x) ? 1u : 0u) << (f.exponent_bits + f.fraction_bits);
  const uint32_t top = ((1u << f.exponent_bits) - 1) << f.fraction_bits;
  if (std::isnan(x)) return sign | top | ((1u << f.fraction_bits) - 1);
  double size = std::abs(x);
  int exponent = 0;
  std::frexp(size, &exponent);
  const int lowest = 1 - f.bias();
  const int power = std::max(exponent - 1, lowest) - f.fraction_bits;
  size = std::ldexp(std::nearbyint(std::ldexp(size, -power)), power);
  if (size > f.largest) {
    if (!f.saturates) return sign | top;
    size = f.largest;
  }
  if (size == 0) return sign;
  std::frexp(size, &exponent);
  exponent -= 1;
  if (exponent < lowest) {
    return sign | static_cast<uint32_t>(std::ldexp(size, f.fraction_bits - lowest));
  }
  const auto significand = static_cast<uint32_t>(std::ldexp(size, f.fraction_bits - exponent));
  return sign | static_cast<uint32_t>(exponent + f.bias()) << f.fraction_bits |
         (significand & ((1u << f.fraction_bits) - 1));
}

const Format& format_of(NumberType type) {
  if (type == NumberType::kF16) return kF16Format;
  return type == NumberType::kE4m3 ? kE4m3Format : kE5m2Format;
}

uint16_t to_bf16(double x) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
T read(uint64_t at, int64_t index) {
  T x;
  std::memcpy(&x, reinterpret_cast<const char*>(at) + index * static_cast<int64_t>(sizeof x),
              sizeof x);
  return x;
}
template <class T>
void write(uint64_t at, int64_t index, T x) {
  std::memcpy(reinterpret_cast<char*>(at) + index * static_cast<int64_t>(sizeof x), &x, sizeof x);
}

}  // namespace

uint64_t bytes_of(NumberType type) {
  switch (type) {
    case NumberType::kF64: return 8;
    case NumberType::kF32: return 4;
    case NumberType::kF16:
    case NumberType::kBf16: return 2;
    default: return 1;
  }
}

double load_number(NumberType type, uint64_t at, int64_t i) {
  switch (type) {
    case NumberType::kF64: return read<double>(at, i);
    case NumberType::kF32: return read<float>(at, i);
    case NumberType::kBf16: return std::bit_cast<float>(uint32_t{read<uint16_t>(at, i)} << 16);
    case NumberType::kF16: return decode(kF16Format, read<uint16_t>(at, i));
    default: return decode(format_of(type), read<uint8_t>(at, i));
  }
}

void store_number(NumberType type, uint64_t at, int64_t i, double x) {
  switch (type) {
    case NumberType::kF64: return write(at, i, x);
    case NumberType::kF32: return write(at, i, static_cast<float>(x));
    case NumberType::kBf16: return write(at, i, to_bf16(x));
    case NumberType::kF16: return write(at, i, static_cast<uint16_t>(encode(kF16Format, x)));
    default: return write(at, i, static_cast<uint8_t>(encode(format_of(type), x)));
  }
}

double rounded_to_tf32(double x) {
  if (!std::isfinite(x)) return x;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

}  // namespace vgpu
