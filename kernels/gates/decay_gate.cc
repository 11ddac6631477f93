#include "kernels/gates/decay_gate.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/decay_gate.h"

namespace weft::kernels {

void decay_gate_forward(Exec& exec, const DecayGate& gate, ConstView z, View g) {
  if (nothing_in(z)) return;
  check_f32(g, "decay_gate: g");
  check_alike("decay_gate", z, g);
  dispatch(exec,
           {.name = "decay_gate_forward",
            .type = z.dtype,
            .flops = 7 * elements(z),
            .read = bytes_of(z),
            .written = bytes_of(g)},
           cpu::decay_gate_forward, gate, z, g);
}

void decay_gate_backward(Exec& exec, const DecayGate& gate, ConstView z, ConstView dg, View dz) {
  if (nothing_in(z)) return;
  check_f32(dg, "decay_gate: dg");
  check_alike("decay_gate", z, dg, dz);
  dispatch(exec,
           {.name = "decay_gate_backward",
            .type = z.dtype,
            .flops = 13 * elements(z),
            .read = bytes_of(z, dg),
            .written = bytes_of(dz)},
           cpu::decay_gate_backward, gate, z, dg, dz);
}

void tied_gates_forward(Exec& exec, ConstView f, ConstView lower, View g, View k) {
  if (nothing_in(f)) return;
  const int64_t rows = f.rows(), width = f.width();
  check_real(f, "tied_gates: f");
  check_optional_numbers(lower, width, "tied_gates: lower");
  check_f32_matrix(g, rows, width, "tied_gates: g");
  check_matrix(k, rows, width, "tied_gates: k");
  dispatch(exec,
           {.name = "tied_gates_forward",
            .type = f.dtype,
            .flops = 18 * elements(f),
            .read = bytes_of(f, lower),
            .written = bytes_of(g, k)},
           cpu::tied_gates_forward, f, lower, g, k);
}

void tied_gates_backward(Exec& exec, const TiedGatesBackward& in) {
  if (nothing_in(in.f)) return;
  const int64_t rows = in.f.rows(), width = in.f.width();
  check_real(in.f, "tied_gates: f");
  check_f32_matrix(in.dg, rows, width, "tied_gates: dg");
  check_matrix(in.dk, rows, width, "tied_gates: dk");
  check_matrix(in.df, rows, width, "tied_gates: df");
  WEFT_CHECK(given(in.lower) == given(in.d_lower),
             "tied_gates: d_lower is wanted exactly when there is a lower bound");
  check_optional_numbers(in.lower, width, "tied_gates: lower");
  check_optional_numbers(in.d_lower, width, "tied_gates: d_lower");
  dispatch(exec,
           {.name = "tied_gates_backward",
            .type = in.f.dtype,
            .flops = 18 * elements(in.f),
            .read = bytes_of(in.f, in.lower, in.dg, in.dk, in.d_lower),
            .written = bytes_of(in.df, in.d_lower)},
           cpu::tied_gates_backward, in);
}

}  // namespace weft::kernels
