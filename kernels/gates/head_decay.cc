#include "kernels/gates/head_decay.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/head_decay.h"

namespace weft::kernels {
namespace {

void check(const HeadDecay& gate) {
  const int64_t heads = gate.a_log.shape.elements();
  check_real(gate.a, "head_decay: a");
  check_heads(gate.a.width(), heads, "head_decay");
  check_numbers(gate.a_log, heads, "head_decay: a_log");
  check_numbers(gate.dt_bias, gate.a.width(), "head_decay: dt_bias");
}

}  // namespace

void head_decay_forward(Exec& exec, const HeadDecay& gate, View g) {
  if (nothing_in(gate.a)) return;
  check(gate);
  check_f32_matrix(g, gate.a.rows(), gate.a.width(), "head_decay: g");
  dispatch(exec,
           {.name = "head_decay_forward",
            .type = gate.a.dtype,
            .flops = 9 * elements(g),
            .read = bytes_of(gate.a, gate.a_log, gate.dt_bias),
            .written = bytes_of(g)},
           cpu::head_decay_forward, gate, g);
}

void head_decay_backward(Exec& exec, const HeadDecay& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias) {
  if (nothing_in(gate.a)) return;
  check(gate);
  const int64_t rows = gate.a.rows(), width = gate.a.width();
  check_f32_matrix(dg, rows, width, "head_decay: dg");
  check_matrix(da, rows, width, "head_decay: da");
  check_numbers(d_a_log, gate.a_log.shape.elements(), "head_decay: d_a_log");
  check_numbers(d_dt_bias, width, "head_decay: d_dt_bias");
  dispatch(exec,
           {.name = "head_decay_backward",
            .type = gate.a.dtype,
            .flops = 16 * elements(dg),
            .read = bytes_of(gate.a, gate.a_log, gate.dt_bias, dg, d_a_log, d_dt_bias),
            .written = bytes_of(da, d_a_log, d_dt_bias)},
           cpu::head_decay_backward, gate, dg, da, d_a_log, d_dt_bias);
}

}  // namespace weft::kernels
