#include "kernels/model/cpu/isa/adamw.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// The arguments by value: a store through a float* could change a float behind a reference.
template <bool publish>
void update_range(const AdamWArgs a, int64_t begin, int64_t end) {
  each_vector(end - begin, [&](int64_t offset, auto n) {
    const int64_t i = begin + offset;
    const VF g = load(a.grad + i, n) * a.grad_scale;
    const VF m = load(a.m + i, n) * a.beta1 + g * a.rest1;
    const VF v = load(a.v + i, n) * a.beta2 + g * g * a.rest2;
    const VF w = load(a.master + i, n);
    const VF step = m * a.rate / (sqrt(v) * a.correction + a.epsilon);
    const VF next = w - (w * a.decay + step);
    store(a.m + i, m, n);
    store(a.v + i, v, n);
    store(a.master + i, next, n);
    if constexpr (publish) store(a.value + i, next, n);
  });
}

void update(const AdamWArgs& a, int64_t begin, int64_t end) {
  if (a.value == nullptr) return update_range<false>(a, begin, end);
  update_range<true>(a, begin, end);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const AdamWTable& table(ThisIsa, const AdamWTable*) {
  static constexpr AdamWTable table{WEFT_ISA_NAMESPACE::update};
  return table;
}

}  // namespace weft::kernels
