#include "kernels/rows/cpu/isa/norm.h"

#include "kernels/cpu/isa/loops.h"

// With n = x * r, r = 1 / sqrt(mean(x^2) + epsilon) and g the gradient of n:
//   dx = r * (g - n * mean(g * n))
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class X>
WEFT_INLINE float inverse_rms(const X* x, int64_t width, float epsilon) {
  const float squares = sum_over(width, [&](int64_t i, auto n) {
    const VF v = load(x + i, n);
    return v * v;
  });
  return 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
}

WEFT_INLINE void clear(float* p, int64_t count) {
  each_vector(count, [&](int64_t i, auto n) { store(p + i, VF{}, n); });
}

template <class X, class Y>
void rms_forward_rows(const RmsForward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const X* x = row<X>(a.x, r);
    Y* y = row<Y>(a.y, r);
    const float scale = inverse_rms(x, a.width, a.epsilon);
    each_vector(a.width, [&](int64_t i, auto n) {
      store(y + i, load(x + i, n) * scale * load(a.weight + i, n), n);
    });
    a.inv_rms[r] = scale;
  }
}

template <class DY, class X, class R, class DX>
void rms_backward_rows(const RmsBackward& a, int64_t begin, int64_t end, float* d_weight) {
  for (int64_t r = begin; r < end; ++r) {
    const DY* dy = row<DY>(a.dy, r);
    const X* x = row<X>(a.x, r);
    DX* dx = row<DX>(a.dx, r);
    const float scale = a.inv_rms[r];
    const float product = sum_over(a.width, [&](int64_t i, auto n) {
      const VF v = load(dy + i, n) * (load(x + i, n) * scale);
      store(d_weight + i, load(d_weight + i, n) + v, n);
      return v * load(a.weight + i, n);
    });
    const float back = scale * product / static_cast<float>(a.width);
    each_vector(a.width, [&](int64_t i, auto n) {
      const VF normal = load(x + i, n) * scale;
      VF v = load(dy + i, n) * load(a.weight + i, n) * scale - normal * back;
      if constexpr (kGiven<R>) v += load(row<R>(a.residual, r) + i, n);
      store(dx + i, v, n);
    });
  }
}

void rms_forward(const RmsForward& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.y.dtype,
             [&](auto x, auto y) { rms_forward_rows<decltype(x), decltype(y)>(a, begin, end); });
}

void rms_backward(const RmsBackward& a, int64_t begin, int64_t end, float* d_weight) {
  clear(d_weight, a.width);
  with_types(a.dy.dtype, a.x.dtype, a.dx.dtype, [&](auto dy, auto x, auto dx) {
    with_optional(a.residual.data, a.residual.dtype, [&](auto residual) {
      rms_backward_rows<decltype(dy), decltype(x), decltype(residual), decltype(dx)>(a, begin, end,
                                                                                     d_weight);
    });
  });
}

template <GateActivation kind>
WEFT_INLINE VF gate_of(VF g) {
  return kind == GateActivation::kSilu ? silu(g) : sigmoid(g);
}

template <GateActivation kind, class X, class G, class Y>
void head_forward_rows(const HeadForward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const X* x = row<X>(a.x, r) + h * a.width;
      Y* y = row<Y>(a.y, r) + h * a.width;
      const float* weight = a.weight + h * a.weight_stride;
      const float scale = inverse_rms(x, a.width, a.epsilon);
      each_vector(a.width, [&](int64_t i, auto n) {
        VF v = load(x + i, n) * scale * load(weight + i, n);
        if constexpr (kind != GateActivation::kNone) {
          v *= gate_of<kind>(load(row<G>(a.gate, r) + h * a.width + i, n));
        }
        store(y + i, v, n);
      });
      a.inv_rms[r * a.heads + h] = scale;
    }
  }
}

// The gate of one head as f32: its value and its slope. Kept apart from the main loop so that the
// types of gate and d_gate do not multiply with those of dy, x and dx.
struct StagedGate {
  float* value;
  float* slope;
  float* gradient;
};

template <class G>
WEFT_INLINE void stage_gate(GateActivation kind, const G* gate, int64_t width,
                            const StagedGate& staged) {
  each_vector(width, [&](int64_t i, auto n) {
    const VF g = load(gate + i, n), s = sigmoid(g);
    const bool silu = kind == GateActivation::kSilu;
    store(staged.value + i, silu ? g * s : s, n);
    store(staged.slope + i, silu ? s * (1.0f + g * (1.0f - s)) : s * (1.0f - s), n);
  });
}

template <class T>
WEFT_INLINE void convert(const float* from, int64_t width, T* to) {
  each_vector(width, [&](int64_t i, auto n) { store(to + i, load(from + i, n), n); });
}

struct OneHead {
  const float* weight;
  float* d_weight;
  float* gradient;  // scratch: of the normalized x
  int64_t width;
  float scale;
};

template <bool gated, class DY, class X, class DX>
void head_backward_one(const OneHead& a, const StagedGate& gate, const DY* dy, const X* x, DX* dx) {
  const float product = sum_over(a.width, [&](int64_t i, auto n) {
    const VF normal = load(x + i, n) * a.scale, w = load(a.weight + i, n);
    VF v = load(dy + i, n);
    if constexpr (gated) {
      store(gate.gradient + i, v * normal * w * load(gate.slope + i, n), n);
      v *= load(gate.value + i, n);
    }
    store(a.d_weight + i, load(a.d_weight + i, n) + v * normal, n);
    store(a.gradient + i, v * w, n);
    return v * w * normal;
  });
  const float mean = product / static_cast<float>(a.width);
  each_vector(a.width, [&](int64_t i, auto n) {
    store(dx + i, (load(a.gradient + i, n) - load(x + i, n) * a.scale * mean) * a.scale, n);
  });
}

template <class DY, class X, class DX>
void head_backward_rows(const HeadBackward& a, int64_t begin, int64_t end, float* d_weight,
                        float* scratch) {
  const int64_t width = a.width;
  const StagedGate gate{scratch + width, scratch + 2 * width, scratch + 3 * width};
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t at = h * width, weights = h * a.weight_stride;
      const OneHead one{a.weight + weights, d_weight + weights, scratch, width,
                        a.inv_rms[r * a.heads + h]};
      const DY* dy = row<DY>(a.dy, r) + at;
      const X* x = row<X>(a.x, r) + at;
      DX* dx = row<DX>(a.dx, r) + at;
      if (a.kind == GateActivation::kNone) {
        head_backward_one<false>(one, gate, dy, x, dx);
        continue;
      }
      with_types(a.gate.dtype, [&](auto g) {
        stage_gate(a.kind, row<decltype(g)>(a.gate, r) + at, width, gate);
      });
      head_backward_one<true>(one, gate, dy, x, dx);
      with_types(a.d_gate.dtype, [&](auto g) {
        convert(gate.gradient, width, row<decltype(g)>(a.d_gate, r) + at);
      });
    }
  }
}

template <GateActivation kind>
WEFT_INLINE void head_forward_with(const HeadForward& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.gate.dtype, a.y.dtype, [&](auto x, auto g, auto y) {
    head_forward_rows<kind, decltype(x), decltype(g), decltype(y)>(a, begin, end);
  });
}

void head_forward(const HeadForward& a, int64_t begin, int64_t end) {
  switch (a.kind) {
    case GateActivation::kSilu: return head_forward_with<GateActivation::kSilu>(a, begin, end);
    case GateActivation::kSigmoid:
      return head_forward_with<GateActivation::kSigmoid>(a, begin, end);
    default: return head_forward_with<GateActivation::kNone>(a, begin, end);
  }
}

void head_backward(const HeadBackward& a, int64_t begin, int64_t end, float* d_weight,
                   float* scratch) {
  clear(d_weight, a.weight_stride == 0 ? a.width : a.heads * a.width);
  with_types(a.dy.dtype, a.x.dtype, a.dx.dtype, [&](auto dy, auto x, auto dx) {
    head_backward_rows<decltype(dy), decltype(x), decltype(dx)>(a, begin, end, d_weight, scratch);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const NormTable& table(ThisIsa, const NormTable*) {
  using namespace WEFT_ISA_NAMESPACE;
  static constexpr NormTable table{rms_forward, rms_backward, head_forward, head_backward};
  return table;
}

}  // namespace weft::kernels
