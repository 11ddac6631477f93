#include "kernels/rows/cpu/isa/head_softmax.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class T>
float largest(const T* x, int64_t width) {
  float most = as_float(x[0]);
  int64_t i = 0;
  if (width >= kLanes) {
    VF lanes = load(x);
    for (i = kLanes; i + kLanes <= width; i += kLanes) lanes = max(lanes, load(x + i));
    most = max_lane(lanes);
  }
  for (; i < width; ++i) most = as_float(x[i]) > most ? as_float(x[i]) : most;
  return most;
}

template <class X, class Y>
void forward_rows(const HeadSoftmaxArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const X* x = row<X>(a.x, r) + h * a.width;
      Y* y = row<Y>(a.out, r) + h * a.width;
      const float most = largest(x, a.width);
      const float total =
          sum_over(a.width, [&](int64_t i, auto n) { return kept(exp(load(x + i, n) - most), n); });
      each_vector(a.width, [&](int64_t i, auto n) {
        store(y + i, exp(load(x + i, n) - most) * (1.0f / total), n);
      });
    }
  }
}

template <class Y, class D, class X>
void backward_rows(const HeadSoftmaxArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const Y* y = row<Y>(a.x, r) + h * a.width;
      const D* dy = row<D>(a.dy, r) + h * a.width;
      X* dx = row<X>(a.out, r) + h * a.width;
      const float dot =
          sum_over(a.width, [&](int64_t i, auto n) { return load(y + i, n) * load(dy + i, n); });
      each_vector(a.width, [&](int64_t i, auto n) {
        store(dx + i, load(y + i, n) * (load(dy + i, n) - dot), n);
      });
    }
  }
}

void forward(const HeadSoftmaxArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.out.dtype,
             [&](auto x, auto y) { forward_rows<decltype(x), decltype(y)>(a, begin, end); });
}
void backward(const HeadSoftmaxArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.dy.dtype, a.out.dtype, [&](auto y, auto d, auto x) {
    backward_rows<decltype(y), decltype(d), decltype(x)>(a, begin, end);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const HeadSoftmaxTable& table(ThisIsa, const HeadSoftmaxTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr HeadSoftmaxTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
