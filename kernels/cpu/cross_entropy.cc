#include "kernels/cpu/cross_entropy.h"

#include <math.h>

#include "kernels/cpu/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

float largest(const float* x, int64_t width) {
  VF a = splat(-__builtin_inff()), b = a;
  int64_t i = 0;
  for (; i + 2 * kLanes <= width; i += 2 * kLanes) {
    a = max(load(x + i), a);
    b = max(load(x + i + kLanes), b);
  }
  float most = max_lane(max(a, b));
  for (; i < width; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// sum of e^(x - shift), f32 within pieces of 4096 and double over them: a vocabulary is long.
double exp_sum(const float* x, int64_t width, float shift) {
  constexpr int64_t kPiece = 4096;
  double total = 0;
  for (int64_t left = 0; left < width; left += kPiece) {
    const int64_t count = width - left < kPiece ? width - left : kPiece;
    total += sum_over(
        count, [&](int64_t i, auto n) { return kept(exp(load(x + left + i, n) - shift), n); });
  }
  return total;
}

template <class D>
void one_row(const CrossEntropy& a, int64_t r) {
  const float* x = row<float>(a.logits, r);
  const int64_t target = a.targets[r];
  if (target < 0) {
    a.losses[r] = 0.0f;
    if constexpr (kGiven<D>) {
      D* d = row<D>(a.d_logits, r);
      each_vector(a.width, [&](int64_t i, auto n) { store(d + i, VF{}, n); });
    }
    return;
  }
  const float shift = largest(x, a.width);
  const double total = exp_sum(x, a.width, shift);
  a.losses[r] = static_cast<float>(::log(total) + (static_cast<double>(shift) - x[target]));
  if constexpr (kGiven<D>) {
    D* d = row<D>(a.d_logits, r);
    const float at_target = exp(splat(x[target] - shift))[0];  // before d overwrites x
    const float factor = static_cast<float>(a.grad_scale / total);
    each_vector(a.width,
                [&](int64_t i, auto n) { store(d + i, exp(load(x + i, n) - shift) * factor, n); });
    const double softmax = at_target / total;
    d[target] = from_float<D>(static_cast<float>((softmax - 1.0) * a.grad_scale));
  }
}

void rows(const CrossEntropy& a, int64_t begin, int64_t end) {
  with_optional(a.d_logits.data, a.d_logits.dtype, [&](auto d) {
    for (int64_t r = begin; r < end; ++r) one_row<decltype(d)>(a, r);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const CrossEntropyTable& cross_entropy_table(ThisIsa) {
  static constexpr CrossEntropyTable table{WEFT_ISA_NAMESPACE::rows};
  return table;
}

}  // namespace weft::kernels
