#include "kernels/cpu/conv1d.h"

#include "kernels/cpu/loops.h"

// With z_t = sum_j w_j x_{t - taps + 1 + j} + bias and y = act(z):
//   dz_t = dy_t act'(z_t);   dx_t = sum_j w_j dz_{t + taps - 1 - j};   dw_j = sum_t dz_t x_{t -
//   taps + 1 + j}
// all within one document. A box needs the dz of the taps - 1 rows below it too and computes them
// again.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// z of token t at channels [c, c + n). The taps that count are the last `reach` + 1; kReach >= 0
// fixes their number for the compiler.
template <int kReach, class X, class N>
WEFT_INLINE VF before_activation(const ConvArgs& a, int64_t t, int64_t c, int64_t reach, N n) {
  VF z = a.bias == nullptr ? VF{} : load(a.bias + c, n);
  if constexpr (kReach >= 0) reach = kReach;
  for (int64_t back = reach; back >= 0; --back) {
    z += load(a.weight + (a.taps - 1 - back) * a.channels + c, n) *
         load(row<X>(a.x, t - back) + c, n);
  }
  return z;
}

// f with the reach as a type where it is the usual one: 4 taps, not at the start of a document.
template <int kReach>
struct Reach {
  static constexpr int value = kReach;
};
template <class F>
WEFT_INLINE void with_reach(int64_t reach, F f) {
  if (reach == 3) {
    f(Reach<3>{});
  } else {
    f(Reach<-1>{});
  }
}

template <int kReach, class X, class Y>
WEFT_INLINE void forward_row(Reach<kReach>, const ConvArgs& a, const Box& box, int64_t t,
                             int64_t reach) {
  Y* y = row<Y>(a.y, t);
  each_vector(box.right - box.left, [&](int64_t i, auto n) {
    const int64_t c = box.left + i;
    const VF z = before_activation<kReach, X>(a, t, c, reach, n);
    store(y + c, a.silu ? silu(z) : z, n);
  });
}

template <class X, class Y>
void forward_box(const ConvArgs& a, const Box& box) {
  for (int64_t t = box.begin; t < box.end; ++t) {
    const int64_t reach = least(a.taps - 1, a.before[t]);
    with_reach(reach, [&](auto fixed) {
      forward_row<decltype(fixed)::value, X, Y>(fixed, a, box, t, reach);
    });
  }
}

void forward(const ConvArgs& a, const Box& box) {
  with_types(a.x.dtype, a.y.dtype,
             [&](auto x, auto y) { forward_box<decltype(x), decltype(y)>(a, box); });
}

template <int kReach, class X, class DY>
WEFT_INLINE void inner_gradient_row(Reach<kReach>, const ConvArgs& a, const Box& box, int64_t t,
                                    float* dz) {
  const int64_t reach = least(a.taps - 1, a.before[t]);
  const DY* dy = row<DY>(a.dy, t) + box.left;
  each_vector(box.right - box.left, [&](int64_t i, auto n) {
    VF d = load(dy + i, n);
    if (a.silu) {
      const VF z = before_activation<kReach, X>(a, t, box.left + i, reach, n), s = sigmoid(z);
      d *= s * (1.0f + z * (1.0f - s));
    }
    store(dz + i, d, n);
  });
}

// dz of rows [box.begin, end), one after the other.
template <class X, class DY>
void inner_gradient(const ConvArgs& a, const Box& box, int64_t end, float* dz) {
  for (int64_t t = box.begin; t < end; ++t) {
    with_reach(least(a.taps - 1, a.before[t]), [&](auto fixed) {
      inner_gradient_row<decltype(fixed)::value, X, DY>(
          fixed, a, box, t, dz + (t - box.begin) * (box.right - box.left));
    });
  }
}

// One pass over d for all taps: sum_j += d * x_{t - taps + 1 + j}, and the bias's sum.
template <int kReach, class X>
WEFT_INLINE void weight_gradient_row(Reach<kReach>, const ConvArgs& a, const Box& box, int64_t t,
                                     const float* dz, float* d_weight) {
  const int64_t reach = kReach >= 0 ? kReach : least(a.taps - 1, a.before[t]);
  each_vector(box.right - box.left, [&](int64_t i, auto n) {
    const VF d = load(dz + i, n);
    const int64_t c = box.left + i;
    for (int64_t back = reach; back >= 0; --back) {
      float* sum = d_weight + (a.taps - 1 - back) * a.channels + c;
      store(sum, load(sum, n) + d * load(row<X>(a.x, t - back) + c, n), n);
    }
    float* bias = d_weight + a.taps * a.channels + c;
    store(bias, load(bias, n) + d, n);
  });
}

template <class X>
void weight_gradient(const ConvArgs& a, const Box& box, const float* dz, float* d_weight) {
  const int64_t width = box.right - box.left;
  for (int64_t j = 0; j <= a.taps; ++j) {
    float* sum = d_weight + j * a.channels + box.left;
    each_vector(width, [&](int64_t i, auto n) { store(sum + i, VF{}, n); });
  }
  for (int64_t t = box.begin; t < box.end; ++t) {
    with_reach(least(a.taps - 1, a.before[t]), [&](auto fixed) {
      weight_gradient_row<decltype(fixed)::value, X>(fixed, a, box, t, dz + (t - box.begin) * width,
                                                     d_weight);
    });
  }
}

template <class DX>
void input_gradient(const ConvArgs& a, const Box& box, const float* dz) {
  const int64_t width = box.right - box.left;
  for (int64_t t = box.begin; t < box.end; ++t) {
    const int64_t reach = least(a.taps - 1, a.after[t]);
    const float* d = dz + (t - box.begin) * width;
    DX* dx = row<DX>(a.dx, t) + box.left;
    each_vector(width, [&](int64_t i, auto n) {
      VF v = {};
      for (int64_t ahead = 0; ahead <= reach; ++ahead) {
        const float* w = a.weight + (a.taps - 1 - ahead) * a.channels + box.left;
        v += load(w + i, n) * load(d + ahead * width + i, n);
      }
      store(dx + i, v, n);
    });
  }
}

void backward(const ConvArgs& a, const Box& box, float* d_weight, float* scratch) {
  const int64_t end = least(a.tokens, box.end + a.taps - 1);
  with_types(a.x.dtype, a.dy.dtype, [&](auto x, auto dy) {
    inner_gradient<decltype(x), decltype(dy)>(a, box, end, scratch);
  });
  with_types(a.x.dtype, [&](auto x) { weight_gradient<decltype(x)>(a, box, scratch, d_weight); });
  with_types(a.dx.dtype, [&](auto dx) { input_gradient<decltype(dx)>(a, box, scratch); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ConvTable& conv_table(ThisIsa) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr ConvTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
