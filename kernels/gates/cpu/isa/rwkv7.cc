#include "kernels/gates/cpu/isa/rwkv7.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// Elements of row r, whatever their type: the bodies here are long beside looking at it.
template <class N>
WEFT_INLINE VF get(const ConstRows& x, int64_t r, int64_t i, N n) {
  return x.dtype == DType::kBF16 ? load(row<bf16>(x, r) + i, n) : load(row<float>(x, r) + i, n);
}
template <class N>
WEFT_INLINE void put(const Rows& x, int64_t r, int64_t i, VF v, N n) {
  if (x.dtype == DType::kBF16) {
    store(row<bf16>(x, r) + i, v, n);
  } else {
    store(row<float>(x, r) + i, v, n);
  }
}
template <class N>
WEFT_INLINE void add(float* sums, int64_t i, VF v, N n) {
  store(sums + i, load(sums + i, n) + v, n);
}
void clear(float* sums, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] = 0;
}

// body(row, first column of the head)
template <class Body>
WEFT_INLINE void each_head(int64_t heads, int64_t width, int64_t begin, int64_t end, Body body) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < heads; ++h) body(r, h * width);
  }
}

// 1 / max(|k k_k|, 1e-12) of one head.
WEFT_INLINE float inverse_length(const Rwkv7KeysArgs& in, int64_t r, int64_t at) {
  const float squares = sum_over(in.width, [&](int64_t i, auto n) {
    const VF x = get(in.k, r, at + i, n) * load(in.k_k + at + i, n);
    return kept(x * x, n);
  });
  return 1.0f / max(sqrt(splat(squares)), splat(1e-12f))[0];
}

void keys(const Rwkv7KeysArgs& in, const Rows& alpha, const Rows& beta, const Rows& key,
          int64_t begin, int64_t end) {
  each_head(in.heads, in.width, begin, end, [&](int64_t r, int64_t at) {
    const float inverse = inverse_length(in, r, at);
    each_vector(in.width, [&](int64_t i, auto n) {
      const VF k = get(in.k, r, at + i, n), a = sigmoid(get(in.gate, r, at + i, n));
      const VF kappa = k * load(in.k_k + at + i, n) * inverse;
      put(alpha, r, at + i, -kappa, n);
      put(beta, r, at + i, kappa * a, n);
      put(key, r, at + i, k + k * (a - 1.0f) * load(in.k_a + at + i, n), n);
    });
  });
}

// With d = dbeta a - dalpha, the gradient of kappa = x inverse, x = k k_k:
//   dx = inverse (d - kappa (kappa . d))
void keys_backward(const Rwkv7KeysArgs& in, const Rwkv7KeysBack& b, int64_t begin, int64_t end) {
  clear(b.d_k_k, in.heads * in.width);
  clear(b.d_k_a, in.heads * in.width);
  each_head(in.heads, in.width, begin, end, [&](int64_t r, int64_t at) {
    const float inverse = inverse_length(in, r, at);
    const auto d_kappa = [&](int64_t j, VF a, auto n) {
      return get(b.d_beta, r, j, n) * a - get(b.d_alpha, r, j, n);
    };
    const float along = sum_over(in.width, [&](int64_t i, auto n) {
      const int64_t j = at + i;
      const VF kappa = get(in.k, r, j, n) * load(in.k_k + j, n) * inverse;
      return kept(kappa * d_kappa(j, sigmoid(get(in.gate, r, j, n)), n), n);
    });
    each_vector(in.width, [&](int64_t i, auto n) {
      const int64_t j = at + i;
      const VF k = get(in.k, r, j, n), a = sigmoid(get(in.gate, r, j, n));
      const VF k_k = load(in.k_k + j, n), k_a = load(in.k_a + j, n);
      const VF kappa = k * k_k * inverse, d_key = get(b.d_key, r, j, n);
      const VF dx = inverse * (d_kappa(j, a, n) - kappa * along);
      const VF da = get(b.d_beta, r, j, n) * kappa + d_key * k * k_a;
      put(b.dk, r, j, dx * k_k + d_key * (1.0f + (a - 1.0f) * k_a), n);
      put(b.d_gate, r, j, da * a * (1.0f - a), n);
      add(b.d_k_k, j, dx * k, n);
      add(b.d_k_a, j, d_key * k * (a - 1.0f), n);
    });
  });
}

struct Statistics {
  float mean, inverse;  // inverse: 1 / sqrt(variance + epsilon)
};
WEFT_INLINE Statistics statistics_of(const Rwkv7OutputArgs& in, int64_t r, int64_t at) {
  const auto width = static_cast<float>(in.width);
  const float mean =
      sum_over(in.width, [&](int64_t i, auto n) { return get(in.o, r, at + i, n); }) / width;
  const float squares = sum_over(in.width, [&](int64_t i, auto n) {
    const VF x = kept(get(in.o, r, at + i, n) - mean, n);
    return x * x;
  });
  return {mean, 1.0f / sqrt(splat(squares / width + in.epsilon))[0]};
}
// r . (k r_k)
WEFT_INLINE float bonus_of(const Rwkv7OutputArgs& in, int64_t r, int64_t at) {
  return sum_over(in.width, [&](int64_t i, auto n) {
    const int64_t j = at + i;
    return get(in.r, r, j, n) * get(in.k, r, j, n) * load(in.r_k + j, n);
  });
}

void output(const Rwkv7OutputArgs& in, const Rows& y, int64_t begin, int64_t end) {
  each_head(in.heads, in.width, begin, end, [&](int64_t r, int64_t at) {
    const Statistics s = statistics_of(in, r, at);
    const float bonus = bonus_of(in, r, at);
    each_vector(in.width, [&](int64_t i, auto n) {
      const int64_t j = at + i;
      const VF x = (get(in.o, r, j, n) - s.mean) * s.inverse;
      const VF z = x * load(in.weight + j, n) + load(in.bias + j, n) + bonus * get(in.v, r, j, n);
      put(y, r, j, z * get(in.gate, r, j, n), n);
    });
  });
}

// With dz = dy gate, x the normalized o and dx = dz weight:
//   d_o = (dx - mean(dx) - x mean(x dx)) / deviation,   d_bonus = dz . v
void output_backward(const Rwkv7OutputArgs& in, const Rwkv7OutputBack& b, int64_t begin,
                     int64_t end) {
  const auto width = static_cast<float>(in.width);
  for (float* sums : {b.d_weight, b.d_bias, b.d_r_k}) clear(sums, in.heads * in.width);
  each_head(in.heads, in.width, begin, end, [&](int64_t r, int64_t at) {
    const Statistics s = statistics_of(in, r, at);
    const float bonus = bonus_of(in, r, at);
    const auto dz_at = [&](int64_t j, auto n) {
      return get(b.dy, r, j, n) * get(in.gate, r, j, n);
    };
    const float mean_dx =
        sum_over(in.width, [&](int64_t i,
                               auto n) { return dz_at(at + i, n) * load(in.weight + at + i, n); }) /
        width;
    const float mean_x_dx = sum_over(in.width,
                                     [&](int64_t i, auto n) {
                                       const VF x = (get(in.o, r, at + i, n) - s.mean) * s.inverse;
                                       return x * dz_at(at + i, n) * load(in.weight + at + i, n);
                                     }) /
                            width;
    const float d_bonus = sum_over(
        in.width, [&](int64_t i, auto n) { return dz_at(at + i, n) * get(in.v, r, at + i, n); });
    each_vector(in.width, [&](int64_t i, auto n) {
      const int64_t j = at + i;
      const VF weight = load(in.weight + j, n), r_k = load(in.r_k + j, n);
      const VF dz = dz_at(j, n), x = (get(in.o, r, j, n) - s.mean) * s.inverse;
      const VF q = get(in.r, r, j, n), k = get(in.k, r, j, n), v = get(in.v, r, j, n);
      put(b.d_o, r, j, s.inverse * (dz * weight - mean_dx - x * mean_x_dx), n);
      put(b.dr, r, j, d_bonus * k * r_k, n);
      put(b.dk, r, j, d_bonus * q * r_k, n);
      put(b.dv, r, j, bonus * dz, n);
      const VF z = x * weight + load(in.bias + j, n) + bonus * v;
      put(b.d_gate, r, j, get(b.dy, r, j, n) * z, n);
      add(b.d_weight, j, dz * x, n);
      add(b.d_bias, j, dz, n);
      add(b.d_r_k, j, d_bonus * q * k, n);
    });
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const Rwkv7Table& table(ThisIsa, const Rwkv7Table*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr Rwkv7Table table{isa::keys, isa::keys_backward, isa::output,
                                    isa::output_backward};
  return table;
}

}  // namespace weft::kernels
