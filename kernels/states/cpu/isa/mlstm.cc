#include "kernels/states/cpu/isa/mlstm.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

void mix(const MlstmMix& a) {
  const VF x = splat(a.a), y = splat(a.b);
  each_vector(a.size, [&](int64_t i, auto n) {
    VF sum = x * load(a.x + i, n);
    if (a.y != nullptr) sum += y * load(a.y + i, n);
    store(a.to + i, sum, n);
  });
}

// In double: the gradient of m is what is left when nearly everything cancels.
constexpr int kHalf = kLanes / 2;
typedef float HF __attribute__((vector_size(kHalf * 4)));
typedef double VD __attribute__((vector_size(kHalf * 8)));
WEFT_INLINE VD load_wide(const float* p) {
  HF v;
  __builtin_memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, VD);
}
double dot(const float* x, const float* y, int64_t size) {
  VD sums[4] = {};
  double total = 0;
  int64_t i = 0;
  for (; i + 4 * kHalf <= size; i += 4 * kHalf) {
    for (int j = 0; j < 4; ++j)
      sums[j] += load_wide(x + i + j * kHalf) * load_wide(y + i + j * kHalf);
  }
  for (; i < size; ++i) total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  const VD sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int lane = 0; lane < kHalf; ++lane) total += sum[lane];
  return total;
}

void join(const MlstmJoin& a, float* wide) {
  const VF factor = splat(a.factor);
  for (int64_t r = 0; r < a.dk; ++r) {
    const float* c = a.c + r * a.dv;
    float* to = wide + r * (a.dv + 1);
    each_vector(a.dv, [&](int64_t i, auto n) { store(to + i, factor * load(c + i, n), n); });
    to[a.dv] = a.factor * a.n[r];
  }
}

void split(const float* wide, const MlstmSplit& a) {
  const VF factor = splat(a.factor);
  for (int64_t r = 0; r < a.dk; ++r) {
    const float* from = wide + r * (a.dv + 1);
    float* c = a.c + r * a.dv;
    each_vector(a.dv, [&](int64_t i, auto n) { store(c + i, factor * load(from + i, n), n); });
    a.n[r] = a.factor * from[a.dv];
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const MlstmStatesTable& table(ThisIsa, const MlstmStatesTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr MlstmStatesTable table{here::mix, here::dot, here::join, here::split};
  return table;
}

}  // namespace weft::kernels
