#include "parallel/comm/reduction.h"

#include <algorithm>

namespace weft {
namespace {

// Carries a reduction of one element over the ranks: bf16 in f32, the others in their own type.
template <class T>
struct Carrier {
  using Type = T;
  static T in(T x) { return x; }
  static T out(T x) { return x; }
};
template <>
struct Carrier<bf16> {
  using Type = float;
  static float in(bf16 x) { return to_float(x); }
  static bf16 out(float x) { return to_bf16(x); }
};

// Blocks keep the running sums in the cache.
template <class T>
void reduce(const Reduction& r) {
  using C = Carrier<T>;
  constexpr int64_t kBlock = 1024;
  typename C::Type sums[kBlock];
  for (int64_t at = r.begin; at < r.end; at += kBlock) {
    const int64_t count = std::min(kBlock, r.end - at);
    for (size_t k = 0; k < r.from.size(); ++k) {
      const T* x = static_cast<const T*>(r.from[k]) + at;
      if (k == 0) {
        for (int64_t i = 0; i < count; ++i) sums[i] = C::in(x[i]);
      } else if (r.op == ReduceOp::kSum) {
        for (int64_t i = 0; i < count; ++i) sums[i] += C::in(x[i]);
      } else {
        for (int64_t i = 0; i < count; ++i) {
          const auto next = C::in(x[i]);
          if (next > sums[i] || next != next) sums[i] = next;  // a NaN wins
        }
      }
    }
    for (void* out : r.to) {
      T* y = static_cast<T*>(out) + at - r.shift;
      for (int64_t i = 0; i < count; ++i) y[i] = C::out(sums[i]);
    }
  }
}

}  // namespace

void Reduction::run(DType dtype) const {
  switch (dtype) {
    case DType::kF32: return reduce<float>(*this);
    case DType::kBF16: return reduce<bf16>(*this);
    case DType::kI32: return reduce<int32_t>(*this);
    case DType::kI64: return reduce<int64_t>(*this);
    default: return reduce<double>(*this);
  }
}

}  // namespace weft
