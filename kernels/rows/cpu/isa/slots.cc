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

template <class S, class P>
WEFT_INLINE void softmax_row(const S* s, P* p, int64_t slots) {
  float most = as_float(s[0]);
  for (int64_t i = 1; i < slots; ++i) most = as_float(s[i]) > most ? as_float(s[i]) : most;
  const float total =
      sum_over(slots, [&](int64_t i, auto n) { return kept(exp(load(s + i, n) - most), n); });
  const float share = 1.0f / total;
  each_vector(slots,
              [&](int64_t i, auto n) { store(p + i, exp(load(s + i, n) - most) * share, n); });
}

void softmax(const SlotHeads& of, const ConstRows& s, const Rows& p, const Box& box) {
  with_types(s.dtype, p.dtype, [&](auto from, auto to) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      for (int64_t h = 0; h < of.heads; ++h) {
        softmax_row(row<decltype(from)>(s, r) + h * of.slots,
                    row<decltype(to)>(p, r) + h * of.slots, of.slots);
      }
    }
  });
}

void softmax_back(const SlotHeads& of, const ConstRows& p, const ConstRows& dp, const Rows& ds,
                  const Box& box) {
  with_types(p.dtype, dp.dtype, ds.dtype, [&](auto p_type, auto d_type, auto to_type) {
    for (int64_t r = box.begin; r < box.end; ++r) {
      for (int64_t h = 0; h < of.heads; ++h) {
        const auto* share = row<decltype(p_type)>(p, r) + h * of.slots;
        const auto* d = row<decltype(d_type)>(dp, r) + h * of.slots;
        auto* to = row<decltype(to_type)>(ds, r) + h * of.slots;
        const float mean = sum_over(
            of.slots, [&](int64_t i, auto n) { return load(share + i, n) * load(d + i, n); });
        each_vector(of.slots, [&](int64_t i, auto n) {
          store(to + i, load(share + i, n) * (load(d + i, n) - mean), n);
        });
      }
    }
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const SlotsTable& table(ThisIsa, const SlotsTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr SlotsTable table{here::writes, here::writes_back, here::softmax,
                                    here::softmax_back};
  return table;
}

}  // namespace weft::kernels
