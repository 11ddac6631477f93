#include "kernels/gates/cpu/output_gate.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/output_gate.h"

namespace weft::kernels::cpu {

void output_gate_forward(Exec& exec, GateActivation act, ConstView x, ConstView gate, View y) {
  const OutputGateTable& table = table_of<OutputGateTable>(exec.isa);
  const OutputGate args{act, rows_of(x), rows_of(gate), {}, rows_of(y), {}};
  for_tiles(exec, common_extent(x, gate, y), [&](const Box& box) { table.forward(args, box); });
}

void output_gate_backward(Exec& exec, GateActivation act, ConstView x, ConstView gate, ConstView dy,
                          View dx, View d_gate) {
  const OutputGateTable& table = table_of<OutputGateTable>(exec.isa);
  const OutputGate args{act, rows_of(x), rows_of(gate), rows_of(dy), rows_of(dx), rows_of(d_gate)};
  for_tiles(exec, common_extent(x, gate, dy, dx, d_gate),
            [&](const Box& box) { table.backward(args, box); });
}

}  // namespace weft::kernels::cpu
