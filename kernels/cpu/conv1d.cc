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

// How many tokens back token t sees, at most taps - 1: less near the start of its document. The
// usual number, that of 4 taps, is known to the compiler; -1 stands for any.
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

// z of one token: z_of(c, n) at channels [c, c + n).
template <int kReach, class X>
struct BeforeActivation {
  const X* x;           // the token's row
  const float* weight;  // the last tap's row, with the bias's after it
  int64_t stride, channels, reach;

  template <class N>
  WEFT_INLINE VF operator()(int64_t c, N n) const {
    VF z = load(weight + channels + c, n);
    for (int64_t back = kReach >= 0 ? kReach : reach; back >= 0; --back) {
      z += load(weight - back * channels + c, n) * load(x - back * stride + c, n);
    }
    return z;
  }
};

template <int kReach, class X>
WEFT_INLINE BeforeActivation<kReach, X> before_activation(const ConvArgs& a, int64_t t) {
  return {row<X>(a.x, t), a.weight + (a.taps - 1) * a.channels, a.x.stride, a.channels,
          least(a.taps - 1, a.before[t])};
}

template <int kReach, class X, class Y>
void forward_row(const ConvArgs& a, const Box& box, int64_t t) {
  const auto z_of = before_activation<kReach, X>(a, t);
  Y* y = row<Y>(a.y, t) + box.left;
  const int64_t left = box.left, width = box.right - left;
  if (a.silu) {
    each_vector(width, [=](int64_t i, auto n) { store(y + i, silu(z_of(left + i, n)), n); });
  } else {
    each_vector(width, [=](int64_t i, auto n) { store(y + i, z_of(left + i, n), n); });
  }
}

void forward(const ConvArgs& a, const Box& box) {
  with_types(a.x.dtype, a.y.dtype, [&](auto x, auto y) {
    for (int64_t t = box.begin; t < box.end; ++t) {
      with_reach(least(a.taps - 1, a.before[t]), [&](auto reach) {
        forward_row<decltype(reach)::value, decltype(x), decltype(y)>(a, box, t);
      });
    }
  });
}

template <int kReach, class X, class DY>
void inner_gradient_row(const ConvArgs& a, const Box& box, int64_t t, float* dz) {
  const auto z_of = before_activation<kReach, X>(a, t);
  const DY* dy = row<DY>(a.dy, t) + box.left;
  const int64_t left = box.left, width = box.right - left;
  if (!a.silu) {
    return each_vector(width, [=](int64_t i, auto n) { store(dz + i, load(dy + i, n), n); });
  }
  each_vector(width, [=](int64_t i, auto n) {
    const VF z = z_of(left + i, n), s = sigmoid(z);
    store(dz + i, load(dy + i, n) * (s * (1.0f + z * (1.0f - s))), n);
  });
}

// dz of rows [box.begin, end), one after the other.
void inner_gradient(const ConvArgs& a, const Box& box, int64_t end, float* dz) {
  with_types(a.x.dtype, a.dy.dtype, [&](auto x, auto dy) {
    for (int64_t t = box.begin; t < end; ++t) {
      with_reach(least(a.taps - 1, a.before[t]), [&](auto reach) {
        inner_gradient_row<decltype(reach)::value, decltype(x), decltype(dy)>(
            a, box, t, dz + (t - box.begin) * (box.right - box.left));
      });
    }
  });
}

// All taps in one pass: sum_j += dz_t * x_{t - taps + 1 + j}, and the bias's sum.
template <int kReach, class X>
void weight_gradient_row(const ConvArgs& a, const Box& box, int64_t t, const float* dz,
                         float* d_weight) {
  const int64_t reach = kReach >= 0 ? kReach : least(a.taps - 1, a.before[t]);
  const int64_t stride = a.x.stride, channels = a.channels;
  const X* x = row<X>(a.x, t) + box.left;
  float* last = d_weight + (a.taps - 1) * channels + box.left;
  each_vector(box.right - box.left, [=](int64_t i, auto n) {
    const VF d = load(dz + i, n);
    for (int64_t back = kReach >= 0 ? kReach : reach; back >= 0; --back) {
      float* sum = last - back * channels + i;
      store(sum, load(sum, n) + d * load(x - back * stride + i, n), n);
    }
    store(last + channels + i, load(last + channels + i, n) + d, n);
  });
}

void weight_gradient(const ConvArgs& a, const Box& box, const float* dz, float* d_weight) {
  const int64_t width = box.right - box.left;
  for (int64_t j = 0; j <= a.taps; ++j) {
    float* sum = d_weight + j * a.channels + box.left;
    each_vector(width, [=](int64_t i, auto n) { store(sum + i, VF{}, n); });
  }
  with_types(a.x.dtype, [&](auto x) {
    for (int64_t t = box.begin; t < box.end; ++t) {
      with_reach(least(a.taps - 1, a.before[t]), [&](auto reach) {
        weight_gradient_row<decltype(reach)::value, decltype(x)>(
            a, box, t, dz + (t - box.begin) * width, d_weight);
      });
    }
  });
}

template <int kReach, class DX>
void input_gradient_row(const ConvArgs& a, const Box& box, int64_t t, const float* dz) {
  const int64_t reach = least(a.taps - 1, a.after[t]), width = box.right - box.left;
  const int64_t channels = a.channels;
  const float* last = a.weight + (a.taps - 1) * channels + box.left;
  DX* dx = row<DX>(a.dx, t) + box.left;
  each_vector(width, [=](int64_t i, auto n) {
    VF v = {};
    for (int64_t ahead = 0; ahead <= (kReach >= 0 ? kReach : reach); ++ahead) {
      v += load(last - ahead * channels + i, n) * load(dz + ahead * width + i, n);
    }
    store(dx + i, v, n);
  });
}

void input_gradient(const ConvArgs& a, const Box& box, const float* dz) {
  with_types(a.dx.dtype, [&](auto dx) {
    for (int64_t t = box.begin; t < box.end; ++t) {
      with_reach(least(a.taps - 1, a.after[t]), [&](auto reach) {
        input_gradient_row<decltype(reach)::value, decltype(dx)>(
            a, box, t, dz + (t - box.begin) * (box.right - box.left));
      });
    }
  });
}

void backward(const ConvArgs& a, const Box& box, float* d_weight, float* scratch) {
  inner_gradient(a, box, least(a.tokens, box.end + a.taps - 1), scratch);
  weight_gradient(a, box, scratch, d_weight);
  input_gradient(a, box, scratch);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ConvTable& conv_table(ThisIsa) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr ConvTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
