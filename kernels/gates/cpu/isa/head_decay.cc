#include "kernels/gates/cpu/isa/head_decay.h"

#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/isa/softplus.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class A>
void forward_rows(const DecayArgs& a, const Rows& g, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const A* from = row<A>(a.a, r);
    float* to = row<float>(g, r);
    each_vector(a.heads, [&](int64_t i, auto n) {
      const VF step = softplus(load(from + i, n) + load(a.dt_bias + i, n));
      store(to + i, -exp(load(a.a_log + i, n)) * step, n);
    });
  }
}

// With z = a + dt_bias:  dz = -dg e^{a_log} sigmoid(z),   d a_log = dg g
template <class A, class DA>
void backward_rows(const DecayArgs& a, const DecayBack& b, int64_t begin, int64_t end) {
  each_vector(a.heads, [&](int64_t i, auto n) {
    const VF rate = -exp(load(a.a_log + i, n)), bias = load(a.dt_bias + i, n);
    VF d_a_log{}, d_dt_bias{};
    for (int64_t r = begin; r < end; ++r) {
      const VF z = load(row<A>(a.a, r) + i, n) + bias;
      const VF ds = load(row<float>(b.dg, r) + i, n) * rate, dz = ds * sigmoid(z);
      d_a_log += ds * softplus(z);
      d_dt_bias += dz;
      store(row<DA>(b.da, r) + i, dz, n);
    }
    store(b.d_a_log + i, d_a_log, n);
    store(b.d_dt_bias + i, d_dt_bias, n);
  });
}

void forward(const DecayArgs& a, const Rows& g, int64_t begin, int64_t end) {
  with_types(a.a.dtype, [&](auto x) { forward_rows<decltype(x)>(a, g, begin, end); });
}

void backward(const DecayArgs& a, const DecayBack& b, int64_t begin, int64_t end) {
  with_types(a.a.dtype, b.da.dtype,
             [&](auto x, auto dx) { backward_rows<decltype(x), decltype(dx)>(a, b, begin, end); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const DecayTable& table(ThisIsa, const DecayTable*) {
  static constexpr DecayTable table{WEFT_ISA_NAMESPACE::forward, WEFT_ISA_NAMESPACE::backward};
  return table;
}

}  // namespace weft::kernels
