#include "kernels/gates/sigmoid_gate.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/sigmoid_gate.h"

namespace weft::kernels {
namespace {

template <class... Views>
Extent checked(ConstView x, const Views&... others) {
  WEFT_CHECK(((others.dtype == x.dtype) && ...), "sigmoid_gate: x is {}, something else is not",
             name_of(x.dtype));
  return common_extent("sigmoid_gate", x, others...);
}

}  // namespace

void sigmoid_gate_forward(Exec& exec, ConstView x, ConstView gate, View y) {
  const Extent extent = checked(x, gate, y);
  const SigmoidGateTable& table = table_of<SigmoidGateTable>(exec.isa);
  const SigmoidGateArgs args{rows_of(x), rows_of(gate), {}, rows_of(y), {}};
  for_tiles(exec, extent, [&](const Box& box) { table.forward(args, box); });
}

void sigmoid_gate_backward(Exec& exec, ConstView x, ConstView gate, ConstView dy, View dx,
                           View d_gate) {
  const Extent extent = checked(x, gate, dy, dx, d_gate);
  const SigmoidGateTable& table = table_of<SigmoidGateTable>(exec.isa);
  const SigmoidGateArgs args{rows_of(x), rows_of(gate), rows_of(dy), rows_of(dx), rows_of(d_gate)};
  for_tiles(exec, extent, [&](const Box& box) { table.backward(args, box); });
}

}  // namespace weft::kernels
