#include "kernels/gates/cpu/isa/output_gate.h"

#include "kernels/cpu/isa/any.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <bool is_silu>
void forward_box(const OutputGate& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    each_vector(box.right - box.left, [&](int64_t j, auto n) {
      const int64_t i = box.left + j;
      const VF z = load_any(a.gate, r, i, n);
      store_any(a.y, r, i, load_any(a.x, r, i, n) * (is_silu ? silu(z) : sigmoid(z)), n);
    });
  }
}

template <bool is_silu>
void backward_box(const OutputGate& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    each_vector(box.right - box.left, [&](int64_t j, auto n) {
      const int64_t i = box.left + j;
      const VF d = load_any(a.dy, r, i, n), z = load_any(a.gate, r, i, n), open = sigmoid(z);
      const VF through = d * load_any(a.x, r, i, n) * open;
      store_any(a.y, r, i, is_silu ? d * z * open : d * open, n);
      store_any(a.d_gate, r, i,
                is_silu ? through * (1.0f + z * (1.0f - open)) : through * (1.0f - open), n);
    });
  }
}

void forward(const OutputGate& a, const Box& box) {
  if (a.act == GateActivation::kSilu) return forward_box<true>(a, box);
  forward_box<false>(a, box);
}
void backward(const OutputGate& a, const Box& box) {
  if (a.act == GateActivation::kSilu) return backward_box<true>(a, box);
  backward_box<false>(a, box);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const OutputGateTable& table(ThisIsa, const OutputGateTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr OutputGateTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
