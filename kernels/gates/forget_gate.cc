#include "kernels/gates/forget_gate.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/forget_gate.h"

namespace weft::kernels {

void forget_gate_forward(Exec& exec, ConstView z, View log_forget) {
  if (nothing_in(z)) return;
  check_f32(z, "forget_gate: z");
  check_f32(log_forget, "forget_gate: log_forget");
  check_alike("forget_gate", z, log_forget);
  dispatch(exec,
           {.name = "forget_gate_forward",
            .flops = 5 * elements(z),
            .read = bytes_of(z),
            .written = bytes_of(log_forget)},
           cpu::forget_gate_forward, z, log_forget);
}

void forget_gate_backward(Exec& exec, ConstView z, ConstView d_log_forget, View dz) {
  if (nothing_in(z)) return;
  check_f32(z, "forget_gate: z");
  check_f32(d_log_forget, "forget_gate: d_log_forget");
  check_f32(dz, "forget_gate: dz");
  check_alike("forget_gate", z, d_log_forget, dz);
  dispatch(exec,
           {.name = "forget_gate_backward",
            .flops = 3 * elements(z),
            .read = bytes_of(z, d_log_forget),
            .written = bytes_of(dz)},
           cpu::forget_gate_backward, z, d_log_forget, dz);
}

}  // namespace weft::kernels
