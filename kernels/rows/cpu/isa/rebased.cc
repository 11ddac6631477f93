#include "kernels/rows/cpu/isa/rebased.h"

#include "kernels/cpu/isa/any.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// Rows in local memory: as wide as the widest head, and a vector more, so that whole vectors may be
// read and written beyond the end, where there are zeros or unused numbers.
constexpr int64_t kRoom = 128 + kLanes;

struct Normed {
  float plain[kRoom] = {};   // before gamma and beta
  float scaled[kRoom] = {};  // x^
  float inv_deviation;
};

void normalize(const RebasedRows& a, int64_t r, int64_t h, Normed& to) {
  const int64_t first = h * a.width;
  const float inverse = 1.0f / static_cast<float>(a.width);
  const float mean = inverse * sum_over(a.width, [&](int64_t i, auto n) {
                       return load_any(a.x, r, first + i, n);
                     });
  const float squares = sum_over(a.width, [&](int64_t i, auto n) {
    const VF d = kept(load_any(a.x, r, first + i, n) - mean, n);
    return d * d;
  });
  to.inv_deviation = 1.0f / __builtin_sqrtf(squares * inverse + a.epsilon);
  each_vector(a.width, [&](int64_t i, auto n) {
    const VF plain = (load_any(a.x, r, first + i, n) - mean) * to.inv_deviation;
    store(to.plain + i, plain, n);
    store(to.scaled + i, plain * load(a.gamma + i, n) + load(a.beta + i, n), n);
  });
}

struct Factors {
  float square, cross;
};
WEFT_INLINE Factors factors(int64_t width) {
  const float inverse = 1.0f / static_cast<float>(width);
  return {__builtin_sqrtf(inverse), __builtin_sqrtf(2.0f * inverse)};
}

// Whole vectors of `count` numbers while they fit before `end`: what they write too much is written
// again.
WEFT_INLINE void put(float* to, const float* end, int64_t count, const float* x, float factor) {
  int64_t i = 0;
  for (; i < count && to + i + kLanes <= end; i += kLanes) store(to + i, load(x + i) * factor);
  if (i < count) store_tail(to + i, load(x + i) * factor, count - i);
}

void forward(const RebasedRows& a, int64_t begin, int64_t end) {
  const int64_t f = a.width, features = f * (f + 1) / 2;
  const Factors by = factors(f);
  Normed x;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      normalize(a, r, h, x);
      float* phi = row<float>(a.phi, r) + h * features;
      each_vector(f, [&](int64_t i, auto n) {
        const VF v = load(x.scaled + i, n);
        store(phi + i, v * v * by.square, n);
      });
      float* to = phi + f;
      for (int64_t i = 0; i + 1 < f; ++i) {
        put(to, phi + features, f - 1 - i, x.scaled + i + 1, x.scaled[i] * by.cross);
        to += f - 1 - i;
      }
    }
  }
}

// dx^ of one head: of the squares, and of the products with every other channel.
void backward_products(int64_t f, const Normed& x, const float* d_phi, float* d) {
  const Factors by = factors(f);
  each_vector(f, [&](int64_t i, auto n) {
    store(d + i, 2.0f * by.square * load(x.scaled + i, n) * load(d_phi + i, n), n);
  });
  const float* from = d_phi + f;
  for (int64_t a = 0; a + 1 < f; ++a) {
    const float factor = x.scaled[a] * by.cross;
    const float* others = x.scaled + a + 1;
    float* d_others = d + a + 1;
    d[a] += by.cross * sum_over(f - 1 - a, [&](int64_t i, auto n) {
              const VF g = load(from + i, n);
              store(d_others + i, load(d_others + i, n) + g * factor, n);
              return g * load(others + i, n);
            });
    from += f - 1 - a;
  }
}

void backward(const RebasedRows& a, int64_t begin, int64_t end, float* d_gamma, float* d_beta) {
  const int64_t f = a.width, features = f * (f + 1) / 2;
  const float inverse = 1.0f / static_cast<float>(f);
  for (int64_t i = 0; i < f; ++i) d_gamma[i] = d_beta[i] = 0.0f;
  Normed x;
  float d[kRoom] = {};
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      normalize(a, r, h, x);
      backward_products(f, x, row<float>(a.d_phi, r) + h * features, d);
      each_vector(f, [&](int64_t i, auto n) {
        const VF g = load(d + i, n);
        store(d_beta + i, load(d_beta + i, n) + g, n);
        store(d_gamma + i, load(d_gamma + i, n) + g * load(x.plain + i, n), n);
        store(d + i, g * load(a.gamma + i, n), n);
      });
      const float mean = inverse * sum_over(f, [&](int64_t i, auto n) { return load(d + i, n); });
      const float along = inverse * sum_over(f, [&](int64_t i, auto n) {
                            return load(d + i, n) * load(x.plain + i, n);
                          });
      each_vector(f, [&](int64_t i, auto n) {
        const VF g = load(d + i, n) - mean - load(x.plain + i, n) * along;
        store_any(a.dx, r, h * f + i, g * x.inv_deviation, n);
      });
    }
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const RebasedTable& table(ThisIsa, const RebasedTable*) {
  static constexpr RebasedTable table{WEFT_ISA_NAMESPACE::forward, WEFT_ISA_NAMESPACE::backward};
  return table;
}

}  // namespace weft::kernels
