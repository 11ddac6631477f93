#include "kernels/sequence/cpu/isa/token_lerp.h"

#include "kernels/cpu/isa/loops.h"

// dx += (1 - mix) dy;   d_before += mix dy;   d_mix = (before - x) dy
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class X, class B, class M>
void forward_rows(const TokenLerpArgs& a, int64_t begin, int64_t end) {
  with_types(a.y.dtype, [&](auto type) {
    for (int64_t t = begin; t < end; ++t) {
      const X* x = row<X>(a.x, t);
      const B* before = row<B>(a.before, t);
      const M* mix = row<M>(a.mix, t);
      auto* y = row<decltype(type)>(a.y, t);
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF here = load(x + i, n);
        store(y + i, here + load(mix + i, n) * (load(before + i, n) - here), n);
      });
    }
  });
}

// One row; `own` takes the gradient of the mix.
template <class X, class B, class M, class Own>
WEFT_INLINE void backward_row(const TokenLerpArgs& a, int64_t t, Own own) {
  const X* x = row<X>(a.x, t);
  const B* before = row<B>(a.before, t);
  const M* mix = row<M>(a.mix, t);
  float *dx = a.dx + t * a.dx_stride, *d_before = a.d_before + t * a.d_before_stride;
  with_types(a.dy.dtype, [&](auto type) {
    const auto* dy = row<decltype(type)>(a.dy, t);
    each_vector(a.width, [&](int64_t i, auto n) {
      const VF d = load(dy + i, n), there = load(mix + i, n) * d;
      store(dx + i, load(dx + i, n) + (d - there), n);
      store(d_before + i, load(d_before + i, n) + there, n);
      own(i, n, d * (load(before + i, n) - load(x + i, n)));
    });
  });
}

template <class X, class B, class M>
void backward_rows(const TokenLerpArgs& a, int64_t begin, int64_t end, float* d_mix) {
  if (d_mix != nullptr) {
    for (int64_t i = 0; i < a.width; ++i) d_mix[i] = 0;
    for (int64_t t = begin; t < end; ++t) {
      backward_row<X, B, M>(
          a, t, [&](int64_t i, auto n, VF d) { store(d_mix + i, load(d_mix + i, n) + d, n); });
    }
    return;
  }
  with_types(a.y.dtype, [&](auto type) {
    for (int64_t t = begin; t < end; ++t) {
      auto* to = row<decltype(type)>(a.y, t);
      backward_row<X, B, M>(a, t, [&](int64_t i, auto n, VF d) { store(to + i, d, n); });
    }
  });
}

void forward(const TokenLerpArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.before.dtype, a.mix.dtype, [&](auto x, auto b, auto m) {
    forward_rows<decltype(x), decltype(b), decltype(m)>(a, begin, end);
  });
}
void backward(const TokenLerpArgs& a, int64_t begin, int64_t end, float* d_mix) {
  with_types(a.x.dtype, a.before.dtype, a.mix.dtype, [&](auto x, auto b, auto m) {
    backward_rows<decltype(x), decltype(b), decltype(m)>(a, begin, end, d_mix);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const TokenLerpTable& table(ThisIsa, const TokenLerpTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr TokenLerpTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
