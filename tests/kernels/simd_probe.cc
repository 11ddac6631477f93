#include "tests/kernels/simd_probe.h"

#include "kernels/cpu/isa/simd.h"

namespace weft::kernels::WEFT_ISA_NAMESPACE {
namespace {

template <class X, class Y, class F>
WEFT_INLINE void over(const X* x, Y* y, int64_t count, F f) {
  for (int64_t i = 0; i < count; i += kLanes) store(y + i, f(load(x + i)));
}

void probe_exp(const float* x, float* y, int64_t count) {
  over(x, y, count, [](VF v) { return exp(v); });
}
void probe_log(const float* x, float* y, int64_t count) {
  over(x, y, count, [](VF v) { return log(v); });
}
void probe_sigmoid(const float* x, float* y, int64_t count) {
  over(x, y, count, [](VF v) { return sigmoid(v); });
}
void probe_tanh(const float* x, float* y, int64_t count) {
  over(x, y, count, [](VF v) { return tanh(v); });
}
void probe_sqrt(const float* x, float* y, int64_t count) {
  over(x, y, count, [](VF v) { return sqrt(v); });
}
void probe_round(const float* x, bf16* y, int64_t count) {
  over(x, y, count, [](VF v) { return v; });
}
void probe_widen(const bf16* x, float* y, int64_t count) {
  over(x, y, count, [](VF v) { return v; });
}
void probe_part(const float* x, float* y, int64_t n) { store_part(y, load_part(x, n), n); }

}  // namespace
}  // namespace weft::kernels::WEFT_ISA_NAMESPACE

namespace weft::test {

SimdProbe simd_probe(kernels::ThisIsa) {
  using namespace kernels::WEFT_ISA_NAMESPACE;
  return {probe_exp,   probe_log,   probe_sigmoid, probe_tanh, probe_sqrt,
          probe_round, probe_widen, probe_part,    kLanes};
}

}  // namespace weft::test
