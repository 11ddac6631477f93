#include "tests/support/vgpu/device/reduce.h"

#include <algorithm>
#include <cstring>

#include "tests/support/vgpu/device/numbers.h"

namespace vgpu {
namespace {

template <class T>
T joined(Reduction reduction, T x, T y) {
  switch (reduction) {
    case Reduction::kProduct: return static_cast<T>(x * y);
    case Reduction::kMax: return std::max(x, y);
    case Reduction::kMin: return std::min(x, y);
    default: return static_cast<T>(x + y);
  }
}

template <class T>
void reduce_integers(Reduction reduction, const std::vector<std::vector<char>>& parts,
                     uint64_t count, char* to) {
  const auto members = static_cast<T>(parts.size());
  for (uint64_t i = 0; i < count; ++i) {
    T x{};
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      T y;
      std::memcpy(&y, parts[rank].data() + i * sizeof y, sizeof y);
      x = rank == 0 ? y : joined(reduction, x, y);
    }
    if (reduction == Reduction::kAverage) x = static_cast<T>(x / members);
    std::memcpy(to + i * sizeof x, &x, sizeof x);
  }
}

NumberType number_type(ElementType type) {
  switch (type) {
    case ElementType::kF16: return NumberType::kF16;
    case ElementType::kF32: return NumberType::kF32;
    case ElementType::kF64: return NumberType::kF64;
    case ElementType::kBf16: return NumberType::kBf16;
    case ElementType::kE4m3: return NumberType::kE4m3;
    default: return NumberType::kE5m2;
  }
}

void reduce_reals(Reduction reduction, NumberType type, const std::vector<std::vector<char>>& parts,
                  uint64_t count, char* to) {
  const size_t members = parts.size();
  const auto result = reinterpret_cast<uint64_t>(to);
  for (uint64_t i = 0; i < count; ++i) {
    const auto index = static_cast<int64_t>(i);
    const size_t first = i * members / count;
    for (size_t step = 0; step < members; ++step) {
      const auto& part = parts[(first + step) % members];
      const double y = load_number(type, reinterpret_cast<uint64_t>(part.data()), index);
      const double x = step == 0 ? y : joined(reduction, load_number(type, result, index), y);
      store_number(type, result, index, x);
    }
    if (reduction == Reduction::kAverage) {
      const double sum = load_number(type, result, index);
      store_number(type, result, index, sum / static_cast<double>(members));
    }
  }
}

}  // namespace

void reduce(Reduction reduction, ElementType type, const std::vector<std::vector<char>>& parts,
            uint64_t count, char* to) {
  switch (type) {
    case ElementType::kI8: return reduce_integers<int8_t>(reduction, parts, count, to);
    case ElementType::kU8: return reduce_integers<uint8_t>(reduction, parts, count, to);
    case ElementType::kI32: return reduce_integers<int32_t>(reduction, parts, count, to);
    case ElementType::kU32: return reduce_integers<uint32_t>(reduction, parts, count, to);
    case ElementType::kI64: return reduce_integers<int64_t>(reduction, parts, count, to);
    case ElementType::kU64: return reduce_integers<uint64_t>(reduction, parts, count, to);
    default: return reduce_reals(reduction, number_type(type), parts, count, to);
  }
}

}  // namespace vgpu
