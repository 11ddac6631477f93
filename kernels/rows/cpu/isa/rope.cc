#include "kernels/rows/cpu/isa/rope.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// cos and sin of token r's angles, one after the other, in f32.
void turn_of(const RopeArgs& a, int64_t r, float* turn) {
  const int64_t half = a.half;
  if (a.fine == nullptr) {
    const double* c = a.coarse + r * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      turn[i] = static_cast<float>(c[i]);
      turn[half + i] = a.sign * static_cast<float>(c[half + i]);
    }
    return;
  }
  const int64_t p = a.positions[r];
  const double* c = a.coarse + (p / kRopeFine - a.first_coarse) * 2 * half;
  const double* f = a.fine + p % kRopeFine * 2 * half;
  for (int64_t i = 0; i < half; ++i) {
    turn[i] = static_cast<float>(c[i] * f[i] - c[half + i] * f[half + i]);
    turn[half + i] = a.sign * static_cast<float>(c[half + i] * f[i] + c[i] * f[half + i]);
  }
}

template <class T>
void rotate_rows(const RopeArgs& a, int64_t begin, int64_t end, float* turn) {
  const int64_t half = a.half;
  for (int64_t r = begin; r < end; ++r) {
    turn_of(a, r, turn);
    for (int64_t h = 0; h < a.heads; ++h) {
      T* low = row<T>(a.x, r) + h * a.head_width;
      T* high = low + half;
      each_vector(half, [&](int64_t i, auto n) {
        const VF x = load(low + i, n), y = load(high + i, n);
        const VF c = load(turn + i, n), s = load(turn + half + i, n);
        store(low + i, x * c - y * s, n);
        store(high + i, y * c + x * s, n);
      });
    }
  }
}

void rotate(const RopeArgs& a, int64_t begin, int64_t end, float* scratch) {
  with_types(a.x.dtype, [&](auto x) { rotate_rows<decltype(x)>(a, begin, end, scratch); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const RopeTable& table(ThisIsa, const RopeTable*) {
  static constexpr RopeTable table{WEFT_ISA_NAMESPACE::rotate};
  return table;
}

}  // namespace weft::kernels
