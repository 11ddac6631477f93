#include "kernels/rows/cpu/isa/l2_norm.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class X, class Y>
void forward_rows(const L2Forward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const X* x = row<X>(a.x, r) + h * a.width;
      Y* y = row<Y>(a.y, r) + h * a.width;
      const float squares = sum_over(a.width, [&](int64_t i, auto n) {
        const VF v = load(x + i, n);
        return v * v;
      });
      const float scale = 1.0f / __builtin_sqrtf(squares + a.epsilon);
      each_vector(a.width, [&](int64_t i, auto n) { store(y + i, load(x + i, n) * scale, n); });
      a.inv_norm[r * a.heads + h] = scale;
    }
  }
}

template <class DY, class Y, class DX>
void backward_rows(const L2Backward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const DY* dy = row<DY>(a.dy, r) + h * a.width;
      const Y* y = row<Y>(a.y, r) + h * a.width;
      DX* dx = row<DX>(a.dx, r) + h * a.width;
      const float along =
          sum_over(a.width, [&](int64_t i, auto n) { return load(dy + i, n) * load(y + i, n); });
      const float scale = a.inv_norm[r * a.heads + h];
      each_vector(a.width, [&](int64_t i, auto n) {
        store(dx + i, (load(dy + i, n) - load(y + i, n) * along) * scale, n);
      });
    }
  }
}

void forward(const L2Forward& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.y.dtype,
             [&](auto x, auto y) { forward_rows<decltype(x), decltype(y)>(a, begin, end); });
}

void backward(const L2Backward& a, int64_t begin, int64_t end) {
  with_types(a.dy.dtype, a.y.dtype, a.dx.dtype, [&](auto dy, auto y, auto dx) {
    backward_rows<decltype(dy), decltype(y), decltype(dx)>(a, begin, end);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const L2Table& table(ThisIsa, const L2Table*) {
  static constexpr L2Table table{WEFT_ISA_NAMESPACE::forward, WEFT_ISA_NAMESPACE::backward};
  return table;
}

}  // namespace weft::kernels
