#include "kernels/gates/cpu/isa/mlstm.h"

#include "kernels/cpu/isa/any.h"
#include "kernels/cpu/isa/softplus.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

WEFT_INLINE float exp_of(float x) {
  float lane[kLanes];
  store(lane, exp(splat(x)));
  return lane[0];
}

// r = i - p log 2, p the nearest integer to i / log 2.
WEFT_INLINE VF rest_of(VF i) {
  const VF shifted = i * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const VF p = shifted - 12582912.0f;
  return (i - p * 0.693145752f) - p * 1.42860677e-6f;
}

// The nearest multiple of 2^-12: sums of such numbers are exact in f32 as long as they stay below
// 2^12, which is more than a chunk of 256 tokens forgets at the model's cap of 15 per token.
WEFT_INLINE VF multiple_of_quantum(VF x) {
  return ((x * 4096.0f + 12582912.0f) - 12582912.0f) * (1.0f / 4096.0f);
}

void gates_forward(const MlstmDocument& a, float* log_decay, float* rest, float* m) {
  each_vector(a.heads, [&](int64_t h, auto n) {
    VF now = a.entering == nullptr ? VF{} : load(a.entering + h, n);
    VF before{};
    for (int64_t t = a.begin; t < a.end; ++t) {
      const int64_t at = t * a.heads + h;
      const VF i = load(row<float>(a.i, t) + h, n);
      const VF l = -softplus(-load(row<float>(a.f, t) + h, n));
      VF r, g;
      if (a.split) {
        r = rest_of(i);
        if (t == a.begin && a.entering == nullptr) before = r;
        g = l + (before - r);
      } else {
        g = multiple_of_quantum(l + before);
        r = (l - g) + before;  // l - g is small, and exact but for 2^-37
      }
      now = max(l + now, i);
      store(log_decay + at, g, n);
      store(rest + at, r, n);
      store(m + at, now, n);
      before = r;
    }
  });
}

// The gradient of m goes to whichever of its two candidates was larger; that of r is that of i.
void gates_backward(const MlstmDocument& a, const MlstmDocumentBack& b) {
  each_vector(a.heads, [&](int64_t h, auto n) {
    const auto state = [&](const float* x) { return x == nullptr ? VF{} : load(x + h, n); };
    VF dm = state(b.d_leaving_m), from_next = state(b.d_leaving_rest);
    for (int64_t t = a.end - 1; t >= a.begin; --t) {
      const int64_t at = t * a.heads + h;
      const VF i = load(row<float>(a.i, t) + h, n), f = load(row<float>(a.f, t) + h, n);
      const VF dg = load(b.d_log_decay + at, n);
      const VF before = t > a.begin ? load(b.m + at - a.heads, n) : state(a.entering);
      dm += load(b.dm + at, n);
      const VF through = select(before - softplus(-f) > i, dm, splat(0.0f));
      const bool own_start = t == a.begin && a.entering == nullptr;
      const VF d_rest = load(b.d_rest + at, n) + (own_start ? from_next : from_next - dg);
      store(row<float>(b.di, t) + h, d_rest + (dm - through), n);
      store(row<float>(b.df, t) + h, (dg + through) * sigmoid(-f), n);
      dm = through, from_next = dg;
    }
    if (b.d_entering != nullptr) store(b.d_entering + h, dm, n);
  });
}

void keys(const MlstmKeyRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      // With a split gate this is a power of two up to roundings of f32, and its product rounds to
      // that of bf16. Not e^{i - r}: rounding i - r would lose more of a small r than f32 has to.
      const float factor = exp_of(row<float>(a.i, r)[h]) * exp_of(-row<float>(a.rest, r)[h]);
      each_vector(a.width, [&](int64_t j, auto n) {
        const int64_t i = h * a.width + j;
        store_any(a.keys, r, i, load_any(a.k, r, i, n) * factor, n);
      });
    }
  }
}

// One token and head: the factor e^r of what was read, and the denominator with its parts.
struct Denominator {
  float factor, value, linear, stabiliser;  // value = max(|linear|, 1) + stabiliser
};
WEFT_INLINE Denominator denominator(const MlstmReadRows& a, int64_t r, int64_t h) {
  const float factor = exp_of(row<float>(a.rest, r)[h]);
  const float linear = factor * row<float>(a.wide, r)[h * (a.width + 1) + a.width];
  const float size = linear < 0 ? -linear : linear;
  const float stabiliser = a.epsilon * exp_of(row<float>(a.m, r)[h]);
  return {factor, (size > 1.0f ? size : 1.0f) + stabiliser, linear, stabiliser};
}

void read_forward(const MlstmReadRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const Denominator d = denominator(a, r, h);
      const float by = d.factor / d.value;
      const float* from = row<float>(a.wide, r) + h * (a.width + 1);
      each_vector(a.width, [&](int64_t j, auto n) {
        store_any(a.out, r, h * a.width + j, load(from + j, n) * by, n);
      });
    }
  }
}

// With numerator N and denominator D:  d N = d_out / D,   d D = -d_out . N / D^2. What the scale of
// both does to the quotient, d r = N . d N + D' d D (D' the linear part of D), is only what D has
// besides: the 1, or the stabiliser.
void read_backward(const MlstmReadRows& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const Denominator d = denominator(a, r, h);
      const float inverse = 1.0f / d.value;
      const float* from = row<float>(a.wide, r) + h * (a.width + 1);
      float* to = row<float>(a.d_wide, r) + h * (a.width + 1);
      VF along{};
      each_vector(a.width, [&](int64_t j, auto n) {
        const VF d_out = load_any(a.d_out, r, h * a.width + j, n);
        along += d_out * load(from + j, n);
        store(to + j, d_out * (inverse * d.factor), n);
      });
      const float d_value = -sum(along) * d.factor * inverse * inverse;
      const bool linear = d.linear > 1.0f || d.linear < -1.0f;
      const float d_linear = linear ? (d.linear > 0 ? d_value : -d_value) : 0.0f;
      to[a.width] = d_linear * d.factor;
      row<float>(a.d_rest, r)[h] = -d_value * (linear ? d.stabiliser : d.value);
      row<float>(a.dm, r)[h] = d_value * d.stabiliser;
    }
  }
}

void center(const ConstRows& x, const Rows& y, int64_t heads, int64_t width, Box box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const float total =
          sum_over(width, [&](int64_t j, auto n) { return load_any(x, r, h * width + j, n); });
      const float mean = total / static_cast<float>(width);
      each_vector(width, [&](int64_t j, auto n) {
        const int64_t i = h * width + j;
        store_any(y, r, i, load_any(x, r, i, n) - mean, n);
      });
    }
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MlstmTable& table(ThisIsa, const MlstmTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr MlstmTable table{isa::gates_forward, isa::gates_backward, isa::keys,
                                    isa::read_forward,  isa::read_backward,  isa::center};
  return table;
}

}  // namespace weft::kernels
