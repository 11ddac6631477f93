#include "kernels/decay_gate.h"

#include "kernels/cpu/decay_gate.h"
#include "kernels/launch.h"

namespace weft::kernels {
namespace {

const DecayTable& table_of(Isa isa) {
  return by_isa(isa, [](auto tag) -> const DecayTable& { return decay_table(tag); });
}

DecayArgs checked(const DecayGate& gate) {
  check_real(gate.a, "decay_gate: a");
  const int64_t heads = gate.a.width();
  return {rows_of(gate.a), vector_of<float>(gate.a_log, heads, "decay_gate: a_log"),
          vector_of<float>(gate.dt_bias, heads, "decay_gate: dt_bias"), heads};
}

}  // namespace

void decay_gate_forward(Exec& exec, const DecayGate& gate, View g) {
  if (nothing_in(gate.a)) return;
  const DecayArgs args = checked(gate);
  check_matrix(g, gate.a.rows(), args.heads, "decay_gate: g");
  WEFT_CHECK(g.dtype == DType::kF32, "decay_gate: g is {}, not f32", name_of(g.dtype));
  const DecayTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(gate.a.rows(), args.heads), [&](int64_t, int64_t begin, int64_t end) {
    table.forward(args, rows_of(g), begin, end);
  });
}

void decay_gate_backward(Exec& exec, const DecayGate& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias) {
  if (nothing_in(gate.a)) return;
  const DecayArgs args = checked(gate);
  const int64_t rows = gate.a.rows();
  check_matrix(dg, rows, args.heads, "decay_gate: dg");
  WEFT_CHECK(dg.dtype == DType::kF32, "decay_gate: dg is {}, not f32", name_of(dg.dtype));
  check_matrix(da, rows, args.heads, "decay_gate: da");
  float* a_log_sum = vector_of<float>(d_a_log, args.heads, "decay_gate: d_a_log");
  float* bias_sum = vector_of<float>(d_dt_bias, args.heads, "decay_gate: d_dt_bias");
  const RowBlocks blocks = sum_blocks(rows, args.heads);
  const Tensor a_log_parts = exec.scratch({blocks.count(), args.heads});
  const Tensor bias_parts = exec.scratch({blocks.count(), args.heads});
  const DecayTable& table = table_of(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(args,
                   {rows_of(dg), rows_of(da), a_log_parts.data<float>() + b * args.heads,
                    bias_parts.data<float>() + b * args.heads},
                   begin, end);
  });
  add_partials(exec, a_log_parts, a_log_sum);
  add_partials(exec, bias_parts, bias_sum);
}

}  // namespace weft::kernels
