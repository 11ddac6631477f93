#include "kernels/gates/cpu/isa/phase.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer

// x less whole turns, within [-pi, pi]. 2 pi in three parts, of which the first two times a number
// of turns below 2^13 are exact.
WEFT_INLINE VF within_a_turn(VF x) {
  const VF n = (x * 0.159154943f + kRounder) - kRounder;
  return ((x - n * 6.28125f) - n * 1.9350051879882812e-3f) - n * 3.0199159819567529e-7f;
}

struct SinCos {
  VF sin, cos;
};
// For |x| <= pi, within 2e-7. x = n pi/2 + r; polynomials of r, |r| <= pi/4, change places and
// signs with n.
WEFT_INLINE SinCos sin_cos(VF x) {
  const VF shifted = x * 0.636619772f + kRounder;
  const VF n = shifted - kRounder;
  const VF r = ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.54978995489188216e-8f;
  const VF z = r * r;
  VF s = splat(-1.9515295891e-4f);
  s = s * z + 8.3321608736e-3f;
  s = s * z - 1.6666654611e-1f;
  s = s * z * r + r;
  VF c = splat(2.443315711809948e-5f);
  c = c * z - 1.388731625493765e-3f;
  c = c * z + 4.166664568298827e-2f;
  c = c * z * z + (1.0f - 0.5f * z);
  const VI quarter = reinterpret_cast<VI>(shifted);
  const VI odd = (quarter & 1) != 0;
  const VF sine = select(odd, c, s), cosine = select(odd, s, c);
  return {select((quarter & 2) != 0, -sine, sine),
          select(((quarter + 1) & 2) != 0, -cosine, cosine)};
}

void running(const ConstRows& theta, const Rows& phase, const Box& box) {
  with_types(theta.dtype, [&](auto type) {
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      VF total = {};
      for (int64_t t = box.begin; t < box.end; ++t) {
        total = within_a_turn(total + load(row<decltype(type)>(theta, t) + box.left + i, n));
        store(row<float>(phase, t) + box.left + i, total, n);
      }
    });
  });
}

void running_back(const ConstRows& d_phase, const float* d_last, const Rows& d_theta,
                  const Box& box) {
  with_types(d_theta.dtype, [&](auto type) {
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      VF total = d_last == nullptr ? VF{} : load(d_last + box.left + i, n);
      for (int64_t t = box.end - 1; t >= box.begin; --t) {
        total += load(row<float>(d_phase, t) + box.left + i, n);
        store(row<decltype(type)>(d_theta, t) + box.left + i, total, n);
      }
    });
  });
}

template <class X, class Y>
void turn_rows(const TurnArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const X* x = row<X>(a.x, t) + h * a.width;
      Y* y = row<Y>(a.to, t) + 2 * h * a.width;
      const float* phase = a.phase.data == nullptr ? nullptr : row<float>(a.phase, t) + h * a.width;
      each_vector(a.width, [&](int64_t i, auto n) {
        const VF v = load(x + i, n);
        SinCos by{splat(1.0f), splat(1.0f)};
        if (phase != nullptr) by = sin_cos(load(phase + i, n));
        store(y + i, v * by.cos, n);
        store(y + a.width + i, v * by.sin, n);
      });
    }
  }
}

template <class D, class To>
void fold_rows(const TurnArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const D* dy = row<D>(a.dy, t) + 2 * h * a.width;
      To* dx = row<To>(a.to, t) + h * a.width;
      each_vector(a.width, [&](int64_t i, auto n) {
        store(dx + i, load(dy + i, n) + load(dy + a.width + i, n), n);
      });
    }
  }
}

template <class X, class D, class To>
void turn_back_rows(const TurnArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      const X* x = row<X>(a.x, t) + h * a.width;
      const D* dy = row<D>(a.dy, t) + 2 * h * a.width;
      const float* phase = row<float>(a.phase, t) + h * a.width;
      To* dx = row<To>(a.to, t) + h * a.width;
      float* d_phase = row<float>(a.d_phase, t) + h * a.width;
      each_vector(a.width, [&](int64_t i, auto n) {
        const SinCos by = sin_cos(load(phase + i, n));
        const VF along = load(dy + i, n), across = load(dy + a.width + i, n);
        const VF slope = load(x + i, n) * (across * by.cos - along * by.sin);
        store(dx + i, along * by.cos + across * by.sin, n);
        store(d_phase + i, load(d_phase + i, n) + slope, n);
      });
    }
  }
}

void turn(const TurnArgs& a, int64_t begin, int64_t end) {
  with_types(a.x.dtype, a.to.dtype,
             [&](auto x, auto y) { turn_rows<decltype(x), decltype(y)>(a, begin, end); });
}
void turn_back(const TurnArgs& a, int64_t begin, int64_t end) {
  with_types(a.dy.dtype, a.to.dtype, [&](auto d, auto to) {
    if (a.phase.data == nullptr) {
      fold_rows<decltype(d), decltype(to)>(a, begin, end);
    } else {
      with_types(a.x.dtype, [&](auto x) {
        turn_back_rows<decltype(x), decltype(d), decltype(to)>(a, begin, end);
      });
    }
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const PhaseTable& table(ThisIsa, const PhaseTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr PhaseTable table{here::running, here::running_back, here::turn, here::turn_back};
  return table;
}

}  // namespace weft::kernels
