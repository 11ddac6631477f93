#include "kernels/gates/cpu/isa/sigmoid_gate.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class T>
void forward_box(const SigmoidGateArgs& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const T *x = row<T>(a.x, r) + box.left, *gate = row<T>(a.gate, r) + box.left;
    T* y = row<T>(a.y, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      store(y + i, load(x + i, n) * sigmoid(load(gate + i, n)), n);
    });
  }
}

template <class T>
void backward_box(const SigmoidGateArgs& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const T *x = row<T>(a.x, r) + box.left, *gate = row<T>(a.gate, r) + box.left;
    const T* dy = row<T>(a.dy, r) + box.left;
    T *dx = row<T>(a.y, r) + box.left, *d_gate = row<T>(a.d_gate, r) + box.left;
    each_vector(box.right - box.left, [&](int64_t i, auto n) {
      const VF d = load(dy + i, n), open = sigmoid(load(gate + i, n));
      store(d_gate + i, d * load(x + i, n) * open * (1.0f - open), n);
      store(dx + i, d * open, n);
    });
  }
}

void forward(const SigmoidGateArgs& a, const Box& box) {
  with_types(a.x.dtype, [&](auto x) { forward_box<decltype(x)>(a, box); });
}
void backward(const SigmoidGateArgs& a, const Box& box) {
  with_types(a.x.dtype, [&](auto x) { backward_box<decltype(x)>(a, box); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const SigmoidGateTable& table(ThisIsa, const SigmoidGateTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr SigmoidGateTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
