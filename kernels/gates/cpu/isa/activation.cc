#include "kernels/gates/cpu/isa/activation.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <Activation f>
WEFT_INLINE VF value(VF x) {
  if constexpr (f == Activation::kRelu) return max(splat(0.0f), x);  // NaN stays NaN
  if constexpr (f == Activation::kSilu) return silu(x);
  if constexpr (f == Activation::kElu1) return select(x > 0.0f, x + 1.0f, exp(x));
  if constexpr (f == Activation::kSigmoid) return sigmoid(x);
  if constexpr (f == Activation::kTanh) return tanh(x);
  return x;
}

template <Activation f>
WEFT_INLINE VF slope(VF x) {
  if constexpr (f == Activation::kRelu) return select(x > 0.0f, splat(1.0f), splat(0.0f));
  if constexpr (f == Activation::kSilu) {
    const VF s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
  }
  if constexpr (f == Activation::kElu1) return select(x > 0.0f, splat(1.0f), exp(x));
  if constexpr (f == Activation::kSigmoid) {
    // s (1 - s) with e^-|x|, which keeps its precision where 1 - s has none left.
    const VF e = exp(-abs(x)), one = 1.0f + e;
    return e / (one * one);
  }
  if constexpr (f == Activation::kTanh) {
    const VF e = exp(-2.0f * abs(x)), one = 1.0f + e;
    return 4.0f * e / (one * one);
  }
  return splat(1.0f);
}

template <Activation f, class X, class Y>
void forward_box(const Pointwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.x, r) + box.left;
    Y* y = row<Y>(a.y, r) + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(y + i, value<f>(load(x + i, n)), n); });
  }
}

template <Activation f, class X, class DY, class DX>
void backward_box(const Pointwise& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const X* x = row<X>(a.x, r) + box.left;
    const DY* dy = row<DY>(a.dy, r) + box.left;
    DX* dx = row<DX>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      store(dx + i, load(dy + i, n) * slope<f>(load(x + i, n)), n);
    });
  }
}

template <Activation f>
struct Function {};

template <class F>
WEFT_INLINE void with_function(Activation f, F call) {
  switch (f) {
    case Activation::kRelu: return call(Function<Activation::kRelu>{});
    case Activation::kSilu: return call(Function<Activation::kSilu>{});
    case Activation::kElu1: return call(Function<Activation::kElu1>{});
    case Activation::kSigmoid: return call(Function<Activation::kSigmoid>{});
    case Activation::kTanh: return call(Function<Activation::kTanh>{});
    default: return call(Function<Activation::kIdentity>{});
  }
}

template <Activation f>
void forward_of(Function<f>, const Pointwise& a, const Box& box) {
  with_types(a.x.dtype, a.y.dtype,
             [&](auto x, auto y) { forward_box<f, decltype(x), decltype(y)>(a, box); });
}

template <Activation f>
void backward_of(Function<f>, const Pointwise& a, const Box& box) {
  with_types(a.x.dtype, a.dy.dtype, a.y.dtype, [&](auto x, auto dy, auto dx) {
    backward_box<f, decltype(x), decltype(dy), decltype(dx)>(a, box);
  });
}

void forward(const Pointwise& a, const Box& box) {
  with_function(a.f, [&](auto f) { forward_of(f, a, box); });
}
void backward(const Pointwise& a, const Box& box) {
  with_function(a.f, [&](auto f) { backward_of(f, a, box); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ActivationTable& table(ThisIsa, const ActivationTable*) {
  static constexpr ActivationTable table{WEFT_ISA_NAMESPACE::forward, WEFT_ISA_NAMESPACE::backward};
  return table;
}

}  // namespace weft::kernels
