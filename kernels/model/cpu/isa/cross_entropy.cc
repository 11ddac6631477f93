#include "kernels/model/cpu/isa/cross_entropy.h"

#include <math.h>

#include "kernels/cpu/isa/loops.h"

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

int64_t entry_of(const CrossEntropySlice& a, int64_t r) {
  const int64_t entry = a.targets[r] - a.first;
  return a.targets[r] >= 0 && entry >= 0 && entry < a.width ? entry : -1;
}

void parts(const CrossEntropySlice& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = row<float>(a.logits, r);
    const int64_t entry = entry_of(a, r);
    float* out = a.parts + 3 * r;
    out[0] = largest(x, a.width);
    out[1] = a.width == 0 ? 0.0f : static_cast<float>(exp_sum(x, a.width, out[0]));
    out[2] = entry < 0 ? 0.0f : x[entry];
  }
}

// Largest logit and sum over the slices of all ranks, in their order; an empty slice has (-inf, 0).
struct WholeRow {
  float shift = -__builtin_inff();
  double total = 0;
  double target = 0;
};
WholeRow whole_row(const CrossEntropySlice& a, int64_t r) {
  WholeRow w;
  for (int64_t k = 0; k < a.ranks; ++k) {
    const float* part = a.all + (k * a.rows + r) * 3;
    w.shift = part[0] > w.shift ? part[0] : w.shift;
  }
  for (int64_t k = 0; k < a.ranks; ++k) {
    const float* part = a.all + (k * a.rows + r) * 3;
    if (part[1] != 0.0f) w.total += part[1] * ::exp(static_cast<double>(part[0]) - w.shift);
    w.target += part[2];
  }
  return w;
}

template <class D>
void one_slice(const CrossEntropySlice& a, int64_t r) {
  const WholeRow w = whole_row(a, r);
  const bool counts = a.targets[r] >= 0;
  a.losses[r] = counts ? static_cast<float>(::log(w.total) + (w.shift - w.target)) : 0.0f;
  if constexpr (kGiven<D>) {
    const float* x = row<float>(a.logits, r);
    D* d = row<D>(a.d_logits, r);
    if (!counts) {
      each_vector(a.width, [&](int64_t i, auto n) { store(d + i, VF{}, n); });
      return;
    }
    const int64_t entry = entry_of(a, r);
    const float factor = static_cast<float>(a.grad_scale / w.total);
    each_vector(a.width, [&](int64_t i, auto n) {
      store(d + i, exp(load(x + i, n) - w.shift) * factor, n);
    });
    if (entry < 0) return;
    const double softmax = ::exp(w.target - w.shift) / w.total;
    d[entry] = from_float<D>(static_cast<float>((softmax - 1.0) * a.grad_scale));
  }
}

void slice(const CrossEntropySlice& a, int64_t begin, int64_t end) {
  with_optional(a.d_logits.data, a.d_logits.dtype, [&](auto d) {
    for (int64_t r = begin; r < end; ++r) one_slice<decltype(d)>(a, r);
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const CrossEntropyTable& table(ThisIsa, const CrossEntropyTable*) {
  static constexpr CrossEntropyTable table{WEFT_ISA_NAMESPACE::rows, WEFT_ISA_NAMESPACE::parts,
                                           WEFT_ISA_NAMESPACE::slice};
  return table;
}

}  // namespace weft::kernels
