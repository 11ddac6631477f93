#include "kernels/gates/output_gate.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/output_gate.h"

namespace weft::kernels {

void output_gate_forward(Exec& exec, GateActivation act, ConstView x, ConstView gate, View y) {
  if (nothing_in(x)) return;
  WEFT_CHECK(act != GateActivation::kNone, "output_gate: a gate without activation");
  check_alike("output_gate", x, gate, y);
  dispatch(exec,
           {.name = "output_gate_forward",
            .type = x.dtype,
            .flops = 5 * elements(x),
            .read = bytes_of(x, gate),
            .written = bytes_of(y)},
           cpu::output_gate_forward, act, x, gate, y);
}

void output_gate_backward(Exec& exec, GateActivation act, ConstView x, ConstView gate, ConstView dy,
                          View dx, View d_gate) {
  if (nothing_in(x)) return;
  WEFT_CHECK(act != GateActivation::kNone, "output_gate: a gate without activation");
  check_alike("output_gate", x, gate, dy, dx, d_gate);
  dispatch(exec,
           {.name = "output_gate_backward",
            .type = x.dtype,
            .flops = 11 * elements(x),
            .read = bytes_of(x, gate, dy),
            .written = bytes_of(dx, d_gate)},
           cpu::output_gate_backward, act, x, gate, dy, dx, d_gate);
}

}  // namespace weft::kernels
