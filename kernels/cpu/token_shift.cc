#include "kernels/cpu/token_shift.h"

#include "kernels/cpu/loops.h"

// dx_t = (1 - a_t) dy_t + a_{t+1} dy_{t+1};   d_logit_t = a_t (1 - a_t) dy_t . (x_{t-1} - x_t)
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE VF share(const TokenShiftArgs& a, int64_t t, int64_t head) {
  return sigmoid(splat(a.logits[t * a.logits_stride + head]));
}

template <class T>
void forward_rows(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const VF from_before = share(a, t, h);
      const T* x = row<T>(a.x, t) + h * a.width;
      const T* before = a.begins[t] ? nullptr : row<T>(a.x, t - 1) + h * a.width;
      T* y = row<T>(a.y, t) + h * a.width;
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF here = load(x + i, n), there = before == nullptr ? VF{} : load(before + i, n);
        store(y + i, here + from_before * (there - here), n);
      });
    }
  }
}

template <class T>
void backward_rows(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const VF from_before = share(a, t, h), from_here = 1.0f - from_before;
      const T* x = row<T>(a.x, t) + h * a.width;
      const T* before = a.begins[t] ? nullptr : row<T>(a.x, t - 1) + h * a.width;
      const T* dy = row<T>(a.dy, t) + h * a.width;
      const T* after = a.begins[t + 1] ? nullptr : row<T>(a.dy, t + 1) + h * a.width;
      const VF to_after = after == nullptr ? VF{} : share(a, t + 1, h);
      T* dx = row<T>(a.y, t) + h * a.width;
      const float slope = sum_over(a.width, [&](int64_t i, auto n) {
        const VF d = load(dy + i, n), there = before == nullptr ? VF{} : load(before + i, n);
        const VF next = after == nullptr ? VF{} : load(after + i, n);
        store(dx + i, from_here * d + to_after * next, n);
        return d * (there - load(x + i, n));
      });
      a.d_logits[t * a.d_logits_stride + h] = slope * (from_before * from_here)[0];
    }
  }
}

void forward(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, [&](auto x) { forward_rows<decltype(x)>(a, begin, end); });
}
void backward(const TokenShiftArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, [&](auto x) { backward_rows<decltype(x)>(a, begin, end); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const TokenShiftTable& token_shift_table(ThisIsa) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr TokenShiftTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
