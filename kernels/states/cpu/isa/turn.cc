#include "kernels/states/cpu/isa/turn.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// With factor x + iy: (x re - y im) + i (y re + x im); kBack turns the sign of y, kConjugate that
// of im.
void turn_head(const TurnedState& a, int64_t head) {
  const int64_t half = a.dk * a.dv;
  const float* factors = a.factors + 2 * head * a.dk;
  const float *re = a.from + 2 * head * half, *im = re + half;
  float *to_re = a.to + 2 * head * half, *to_im = to_re + half;
  const float y_sign = a.turn == Turn::kBack ? -1.0f : 1.0f;
  const VF im_sign = splat(a.turn == Turn::kConjugate ? -1.0f : 1.0f);
  for (int64_t c = 0; c < a.dk; ++c) {
    const VF x = splat(factors[c]), y = splat(y_sign * factors[a.dk + c]);
    const int64_t at = c * a.dv;
    each_vector(a.dv, [&](int64_t i, auto n) {
      const VF real = load(re + at + i, n), imaginary = im_sign * load(im + at + i, n);
      store(to_re + at + i, x * real - y * imaginary, n);
      store(to_im + at + i, y * real + x * imaginary, n);
    });
  }
}

void conjugate_head(const float* from, float* to, int64_t half) {
  each_vector(half, [&](int64_t i, auto n) {
    store(to + i, load(from + i, n), n);
    store(to + half + i, -load(from + half + i, n), n);
  });
}

void gradient_head(const TurnGradient& a, int64_t head) {
  const int64_t half = a.dk * a.dv;
  for (int64_t c = 0; c < a.dk; ++c) {
    const float* re = a.state + 2 * head * half + c * a.dv;
    const float* d_re = a.d_state + 2 * head * half + c * a.dv;
    a.d_angle[head * a.dk + c] = sum_over(a.dv, [&](int64_t i, auto n) {
      return load(d_re + half + i, n) * load(re + i, n) -
             load(d_re + i, n) * load(re + half + i, n);
    });
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const TurnTable& table(ThisIsa, const TurnTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr TurnTable table{here::turn_head, here::conjugate_head, here::gradient_head};
  return table;
}

}  // namespace weft::kernels
