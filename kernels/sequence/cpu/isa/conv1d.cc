#include "kernels/sequence/cpu/isa/conv1d.h"

#include "kernels/cpu/isa/loops.h"

// With z_t = sum_j w_j x_{t - taps + 1 + j} + bias and y = act(z):
//   dz_t = dy_t act'(z_t);   dx_t = sum_j w_j dz_{t + taps - 1 - j};   dw_j = sum_t dz_t x_{t -
//   taps + 1 + j}
// all within one document and the history before it. A box needs the dz of the taps - 1 rows below
// it too and computes them again.
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

// A token's row and how to get to those before it that it sees. Rows of edges have a type of their
// own, so that the loops over f32 rows of x stay inlined.
template <int kReach_, class X_, bool kEdge = false>
struct Seen {
  static constexpr int kReach = kReach_;
  using X = X_;
  const X* x;
  int64_t stride, any;  // any: the reach when it is not known to the compiler

  WEFT_INLINE int64_t reach() const { return kReach >= 0 ? kReach : any; }
};

// f(what token t sees): rows of x, or of the edges where its history counts.
template <class X, class F>
WEFT_INLINE void with_seen(const ConvArgs& a, int64_t t, F f) {
  const int64_t most = a.taps - 1, before = a.before[t];
  if (a.edges != nullptr && before < most) {
    const float* x = a.edges + ((2 * a.document[t] + 1) * most + before) * a.channels;
    with_reach(most, [&](auto reach) {
      f(Seen<decltype(reach)::value, float, true>{x, a.channels, most});
    });
  } else {
    with_reach(least(most, before), [&](auto reach) {
      f(Seen<decltype(reach)::value, X>{row<X>(a.x, t), a.x.stride, least(most, before)});
    });
  }
}

// z of one token: z_of(c, n) at channels [c, c + n).
template <class Seen>
struct BeforeActivation {
  Seen seen;
  const float* weight;  // the last tap's row, with the bias's after it
  int64_t channels;

  template <class N>
  WEFT_INLINE VF operator()(int64_t c, N n) const {
    VF z = load(weight + channels + c, n);
    for (int64_t back = seen.reach(); back >= 0; --back) {
      z += load(weight - back * channels + c, n) * load(seen.x - back * seen.stride + c, n);
    }
    return z;
  }
};

template <class Seen>
WEFT_INLINE BeforeActivation<Seen> before_activation(const ConvArgs& a, const Seen& seen) {
  return {seen, a.weight + (a.taps - 1) * a.channels, a.channels};
}

template <class Y, class Seen>
void forward_row(const ConvArgs& a, const Box& box, int64_t t, Seen seen) {
  const auto z_of = before_activation(a, seen);
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
      with_seen<decltype(x)>(a, t, [&](auto seen) { forward_row<decltype(y)>(a, box, t, seen); });
    }
  });
}

template <class DY, class Seen>
void inner_gradient_row(const ConvArgs& a, const Box& box, int64_t t, Seen seen, float* dz) {
  const auto z_of = before_activation(a, seen);
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
      with_seen<decltype(x)>(a, t, [&](auto seen) {
        inner_gradient_row<decltype(dy)>(a, box, t, seen,
                                         dz + (t - box.begin) * (box.right - box.left));
      });
    }
  });
}

// All taps in one pass: sum_j += dz_t * x_{t - taps + 1 + j}, and the bias's sum.
template <class Seen>
void weight_gradient_row(const ConvArgs& a, const Box& box, Seen seen, const float* dz,
                         float* d_weight) {
  const int64_t channels = a.channels;
  const auto* x = seen.x + box.left;
  float* last = d_weight + (a.taps - 1) * channels + box.left;
  each_vector(box.right - box.left, [=](int64_t i, auto n) {
    const VF d = load(dz + i, n);
    for (int64_t back = seen.reach(); back >= 0; --back) {
      float* sum = last - back * channels + i;
      store(sum, load(sum, n) + d * load(x - back * seen.stride + i, n), n);
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
      with_seen<decltype(x)>(a, t, [&](auto seen) {
        weight_gradient_row(a, box, seen, dz + (t - box.begin) * width, d_weight);
      });
    }
  });
}

// Row `row` of the gradient of the history that a document leaves, if there is one.
WEFT_INLINE const float* d_leaving_row(const ConvArgs& a, int64_t document, int64_t row) {
  if (a.d_leaving == nullptr || row < 0) return nullptr;
  return a.d_leaving + (document * (a.taps - 1) + row) * a.channels;
}

template <int kReach, class DX>
void input_gradient_row(const ConvArgs& a, const Box& box, int64_t t, const float* dz) {
  const int64_t reach = least(a.taps - 1, a.after[t]), width = box.right - box.left;
  const int64_t channels = a.channels;
  const float* last = a.weight + (a.taps - 1) * channels + box.left;
  DX* dx = row<DX>(a.dx, t) + box.left;
  const float* left = nullptr;  // gradient of a row that left the document
  if (reach < a.taps - 1) left = d_leaving_row(a, a.document[t], a.taps - 2 - reach);
  if (left != nullptr) left += box.left;
  each_vector(width, [=](int64_t i, auto n) {
    VF v = left == nullptr ? VF{} : load(left + i, n);
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

// Row i of the history is seen by token p with tap i - p, and leaves again as row i - count of a
// document shorter than it.
template <class D>
void history_gradient_row(const ConvArgs& a, const ConvDocument& document, int64_t i, int64_t left,
                          int64_t width, const float* dz) {
  const int64_t channels = a.channels, tokens = least(document.count, i + 1);
  const float* passed = d_leaving_row(a, document.number, i - document.count);
  const float* weight = a.weight + i * channels + left;
  D* to = row<D>(a.d_entering, document.number * (a.taps - 1) + i) + left;
  each_vector(width, [=](int64_t c, auto n) {
    VF v = passed == nullptr ? VF{} : load(passed + left + c, n);
    for (int64_t p = 0; p < tokens; ++p) {
      v += load(weight - p * channels + c, n) * load(dz + p * width + c, n);
    }
    store(to + c, v, n);
  });
}

void history_backward(const ConvArgs& a, const ConvDocument& document, int64_t left, int64_t right,
                      float* scratch) {
  const int64_t end = document.begin + least(document.count, a.taps - 1);
  inner_gradient(a, {document.begin, end, left, right}, end, scratch);
  with_types(a.d_entering.dtype, [&](auto d) {
    for (int64_t i = 0; i < a.taps - 1; ++i) {
      history_gradient_row<decltype(d)>(a, document, i, left, right - left, scratch);
    }
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ConvTable& table(ThisIsa, const ConvTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr ConvTable table{here::forward, here::backward, here::history_backward};
  return table;
}

}  // namespace weft::kernels
