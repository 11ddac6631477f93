#include "kernels/routing/cpu/isa/mix_rows.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class X, class Y>
void forward_rows(const MixRowsArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int32_t* from = a.row + r * a.active;
    const float* weight = a.weight + r * a.active;
    Y* y = row<Y>(a.y, r);
    each_vector(a.width, [&](int64_t i, auto n) {
      VF sum = {};
      for (int64_t j = 0; j < a.active; ++j) {
        sum += weight[j] * load(row<X>(a.rows, from[j]) + i, n);
      }
      store(y + i, sum, n);
    });
  }
}

template <class X, class D, class Y>
void backward_rows(const MixRowsArgs& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const D* dy = row<D>(a.dy, r);
    for (int64_t j = 0; j < a.active; ++j) {
      const int64_t pair = r * a.active + j;
      const X* x = row<X>(a.rows, a.row[pair]);
      Y* dx = row<Y>(a.y, a.row[pair]);
      const float weight = a.weight[pair];
      each_vector(a.width, [&](int64_t i, auto n) { store(dx + i, weight * load(dy + i, n), n); });
      a.d_weight[pair] =
          sum_over(a.width, [&](int64_t i, auto n) { return load(dy + i, n) * load(x + i, n); });
    }
  }
}

void forward(const MixRowsArgs& a, int64_t begin, int64_t end) {
  with_types(a.rows.dtype, a.y.dtype,
             [&](auto x, auto y) { forward_rows<decltype(x), decltype(y)>(a, begin, end); });
}
void backward(const MixRowsArgs& a, int64_t begin, int64_t end) {
  with_types(a.rows.dtype, a.dy.dtype, a.y.dtype, [&](auto x, auto d, auto y) {
    backward_rows<decltype(x), decltype(d), decltype(y)>(a, begin, end);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MixRowsTable& table(ThisIsa, const MixRowsTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr MixRowsTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
