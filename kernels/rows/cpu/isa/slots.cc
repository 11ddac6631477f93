#include "kernels/rows/cpu/isa/slots.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

// 1 - e^g of g <= 0. The difference loses digits where e^g is near 1; the series does not.
WEFT_INLINE VF written(VF g) {
  VF series = splat(1.0f / 720);
  series = series * g + 1.0f / 120;
  series = series * g + 1.0f / 24;
  series = series * g + 1.0f / 6;
  series = series * g + 0.5f;
  series = series * g + 1.0f;
  return select(g > -0.25f, -g * series, 1.0f - exp(g));
}

void writes(const ConstRows& g, const Rows& w, const Box& box) {
  with_types(w.dtype, [&](auto type) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      const float* from = row<float>(g, r) + box.left;
      auto* to = row<decltype(type)>(w, r) + box.left;
      each_vector(box.right - box.left,
                  [&](int64_t i, auto n) { store(to + i, written(load(from + i, n)), n); });
    }
  });
}

void writes_back(const ConstRows& g, const ConstRows& dw, const Rows& dg, const Box& box) {
  with_types(dw.dtype, [&](auto type) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      const float* from = row<float>(g, r) + box.left;
      const auto* d = row<decltype(type)>(dw, r) + box.left;
      float* to = row<float>(dg, r) + box.left;
      each_vector(box.right - box.left, [&](int64_t i, auto n) {
        store(to + i, load(to + i, n) - exp(load(from + i, n)) * load(d + i, n), n);
      });
    }
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const SlotsTable& table(ThisIsa, const SlotsTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr SlotsTable table{here::writes, here::writes_back};
  return table;
}

}  // namespace weft::kernels
