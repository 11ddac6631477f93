#include "kernels/gates/cpu/isa/ffn_activation.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// erf for |x| <= 4, beyond which it is 1 in f32: an odd rational function, wrong by at most 5e-7.
WEFT_INLINE VF erf(VF x) {
  const VF c = min(max(x, splat(-4.0f)), splat(4.0f)), z = c * c;
  VF p = splat(-2.72614225801306e-10f);
  p = p * z + 2.77068142495902e-08f;
  p = p * z - 2.10102402082508e-06f;
  p = p * z - 5.69250639462346e-05f;
  p = p * z - 7.34990630326855e-04f;
  p = p * z - 2.95459980854025e-03f;
  p = p * z - 1.60960333262415e-02f;
  VF q = splat(-1.45660718464996e-05f);
  q = q * z - 2.13374055278905e-04f;
  q = q * z - 1.68282697438203e-03f;
  q = q * z - 7.37332916720468e-03f;
  q = q * z - 1.42647390514189e-02f;
  return select(x != x, x, c * p / q);
}

struct Point {
  VF value, slope;
};

template <FfnActivation a>
WEFT_INLINE Point point(VF x) {
  if constexpr (a == FfnActivation::kGelu) {
    // Beyond 5.5 Phi is 0 or 1; what is left of 1 + erf there is rounding, and x may be large.
    const VF inside = 0.5f + 0.5f * erf(x * 0.70710678f);
    const VF phi = select(x > 5.5f, splat(1.0f), select(x < -5.5f, splat(0.0f), inside));
    return {x * phi, phi + x * (0.39894228f * exp(-0.5f * x * x))};
  } else {
    const VF positive = max(splat(0.0f), x);  // NaN stays NaN
    return {positive * positive, 2.0f * positive};
  }
}

template <FfnActivation a, class X, class H>
void forward_rows(const Hidden& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const X* x = row<X>(args.pre, r);
    H* h = row<H>(args.h, r);
    const float scale = args.scale == nullptr ? 1.0f : args.scale[r];
    each_vector(args.width, [&](int64_t i, auto n) {
      store(h + i, point<a>(load(x + i, n)).value * scale, n);
    });
  }
}

// Every element is read before the one at the same place is written: d_pre may be pre.
template <FfnActivation a, class X, class DH, class DX, class H>
void backward_rows(const Hidden& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const X* x = row<X>(args.pre, r);
    const DH* dh = row<DH>(args.dh, r);
    DX* dx = row<DX>(args.d_pre, r);
    const float scale = args.scale == nullptr ? 1.0f : args.scale[r];
    const float product = sum_over(args.width, [&](int64_t i, auto n) {
      const VF d = load(dh + i, n);
      const Point at = point<a>(load(x + i, n));
      if constexpr (kGiven<H>) store(row<H>(args.h, r) + i, at.value * scale, n);
      store(dx + i, d * scale * at.slope, n);
      return d * at.value;
    });
    if (args.d_scale != nullptr) args.d_scale[r] = product;
  }
}

template <FfnActivation a>
void forward_of(const Hidden& args, int64_t begin, int64_t end) {
  with_types(args.pre.dtype, args.h.dtype,
             [&](auto x, auto h) { forward_rows<a, decltype(x), decltype(h)>(args, begin, end); });
}

template <FfnActivation a>
void backward_of(const Hidden& args, int64_t begin, int64_t end) {
  with_types(args.pre.dtype, args.dh.dtype, args.d_pre.dtype, [&](auto x, auto dh, auto dx) {
    with_optional(args.h.data, args.h.dtype, [&](auto h) {
      backward_rows<a, decltype(x), decltype(dh), decltype(dx), decltype(h)>(args, begin, end);
    });
  });
}

void forward(const Hidden& args, int64_t begin, int64_t end) {
  if (args.a == FfnActivation::kGelu) return forward_of<FfnActivation::kGelu>(args, begin, end);
  forward_of<FfnActivation::kRelu2>(args, begin, end);
}

void backward(const Hidden& args, int64_t begin, int64_t end) {
  if (args.a == FfnActivation::kGelu) return backward_of<FfnActivation::kGelu>(args, begin, end);
  backward_of<FfnActivation::kRelu2>(args, begin, end);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const FfnActivationTable& table(ThisIsa, const FfnActivationTable*) {
  static constexpr FfnActivationTable table{WEFT_ISA_NAMESPACE::forward,
                                            WEFT_ISA_NAMESPACE::backward};
  return table;
}

}  // namespace weft::kernels
