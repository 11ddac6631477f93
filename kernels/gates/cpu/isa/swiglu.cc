#include "kernels/gates/cpu/isa/swiglu.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class G, class H>
void swiglu_forward_rows(const Hidden& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const G* gate = row<G>(a.pre, r);
    const G* up = gate + a.width;
    H* h = row<H>(a.h, r);
    const float scale = a.scale == nullptr ? 1.0f : a.scale[r];
    each_vector(a.width, [&](int64_t i, auto n) {
      store(h + i, silu(load(gate + i, n)) * load(up + i, n) * scale, n);
    });
  }
}

// Every element is read before the one at the same place is written: d_pre may be pre.
template <class G, class DH, class DG, class H>
void swiglu_backward_rows(const Hidden& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const G* gate = row<G>(a.pre, r);
    const G* up = gate + a.width;
    const DH* dh = row<DH>(a.dh, r);
    DG* d_gate = row<DG>(a.d_pre, r);
    DG* d_up = d_gate + a.width;
    const float scale = a.scale == nullptr ? 1.0f : a.scale[r];
    const float product = sum_over(a.width, [&](int64_t i, auto n) {
      const VF g = load(gate + i, n), u = load(up + i, n), d = load(dh + i, n);
      const VF s = sigmoid(g), act = g * s, h = act * u;
      if constexpr (kGiven<H>) store(row<H>(a.h, r) + i, h * scale, n);
      const VF scaled = d * scale;
      store(d_gate + i, scaled * u * (s * (1.0f + g * (1.0f - s))), n);
      store(d_up + i, scaled * act, n);
      return d * h;
    });
    if (a.d_scale != nullptr) a.d_scale[r] = product;
  }
}

void forward(const Hidden& a, int64_t begin, int64_t end) {
  with_types(a.pre.dtype, a.h.dtype,
             [&](auto g, auto h) { swiglu_forward_rows<decltype(g), decltype(h)>(a, begin, end); });
}

void backward(const Hidden& a, int64_t begin, int64_t end) {
  with_types(a.pre.dtype, a.dh.dtype, a.d_pre.dtype, [&](auto g, auto dh, auto dg) {
    with_optional(a.h.data, a.h.dtype, [&](auto h) {
      swiglu_backward_rows<decltype(g), decltype(dh), decltype(dg), decltype(h)>(a, begin, end);
    });
  });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const SwigluTable& table(ThisIsa, const SwigluTable*) {
  static constexpr SwigluTable table{WEFT_ISA_NAMESPACE::forward, WEFT_ISA_NAMESPACE::backward};
  return table;
}

}  // namespace weft::kernels
