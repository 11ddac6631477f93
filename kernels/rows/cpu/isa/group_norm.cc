#include "kernels/rows/cpu/isa/group_norm.h"

#include "kernels/cpu/isa/loops.h"

// With z = (x - mean) inv_deviation and e = dy weight, per head:
//   dx = inv_deviation (e - mean(e) - z mean(e z)),   d_weight += dy z,   d_bias += dy
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class X, class Y>
void forward_rows(const GroupNormArgs& a, int64_t begin, int64_t end) {
  const float share = 1.0f / static_cast<float>(a.width);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const X* x = row<X>(a.x, t) + h * a.width;
      Y* y = row<Y>(a.y, t) + h * a.width;
      const float *weight = a.weight + h * a.width, *bias = a.bias + h * a.width;
      const float mean =
          share * sum_over(a.width, [&](int64_t i, auto n) { return load(x + i, n); });
      const float variance = share * sum_over(a.width, [&](int64_t i, auto n) {
                               const VF off = kept(load(x + i, n) - mean, n);
                               return off * off;
                             });
      const float inv = sqrt(splat(1.0f / (variance + a.epsilon)))[0];
      each_vector(a.width, [&](int64_t i, auto n) {
        store(y + i, (load(x + i, n) - mean) * inv * load(weight + i, n) + load(bias + i, n), n);
      });
      a.mean[t * a.heads + h] = mean;
      a.inv_deviation[t * a.heads + h] = inv;
    }
  }
}

template <class X, class D, class Y>
void backward_rows(const GroupNormArgs& a, int64_t begin, int64_t end, float* d_weight,
                   float* d_bias) {
  const float share = 1.0f / static_cast<float>(a.width);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t at = h * a.width;
      const X* x = row<X>(a.x, t) + at;
      const D* dy = row<D>(a.dy, t) + at;
      Y* dx = row<Y>(a.y, t) + at;
      const float *weight = a.weight + at, mean = a.mean[t * a.heads + h],
                  inv = a.inv_deviation[t * a.heads + h];
      const float even = share * sum_over(a.width, [&](int64_t i, auto n) {
                           return load(dy + i, n) * load(weight + i, n);
                         });
      const float along = share * sum_over(a.width, [&](int64_t i, auto n) {
                            const VF z = (load(x + i, n) - mean) * inv, d = load(dy + i, n);
                            float *dw = d_weight + at + i, *db = d_bias + at + i;
                            store(dw, load(dw, n) + d * z, n);
                            store(db, load(db, n) + d, n);
                            return d * load(weight + i, n) * z;
                          });
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF z = (load(x + i, n) - mean) * inv;
        store(dx + i, inv * (load(dy + i, n) * load(weight + i, n) - even - z * along), n);
      });
    }
  }
}

void forward(const GroupNormArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.y.dtype,
             [&](auto x, auto y) { forward_rows<decltype(x), decltype(y)>(a, begin, end); });
}
void backward(const GroupNormArgs& a, int64_t begin, int64_t end, float* d_weight, float* d_bias) {
  for (int64_t i = 0; i < a.heads * a.width; ++i) d_weight[i] = d_bias[i] = 0;
  with_types(a.x.dtype, a.dy.dtype, a.y.dtype, [&](auto x, auto d, auto y) {
    backward_rows<decltype(x), decltype(d), decltype(y)>(a, begin, end, d_weight, d_bias);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const GroupNormTable& table(ThisIsa, const GroupNormTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr GroupNormTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
