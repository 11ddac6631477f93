#include "kernels/head_decay.h"

#include "kernels/cpu/head_decay.h"
#include "kernels/launch.h"

namespace weft::kernels {
namespace {

const DecayTable& table_of(Isa isa) {
  return by_isa(isa, [](auto tag) -> const DecayTable& { return decay_table(tag); });
}

DecayArgs checked(const HeadDecay& gate) {
  check_real(gate.a, "head_decay: a");
  const int64_t heads = gate.a.width();
  return {rows_of(gate.a), vector_of<float>(gate.a_log, heads, "head_decay: a_log"),
          vector_of<float>(gate.dt_bias, heads, "head_decay: dt_bias"), heads};
}

}  // namespace

void head_decay_forward(Exec& exec, const HeadDecay& gate, View g) {
  if (nothing_in(gate.a)) return;
  const DecayArgs args = checked(gate);
  check_matrix(g, gate.a.rows(), args.heads, "head_decay: g");
  WEFT_CHECK(g.dtype == DType::kF32, "head_decay: g is {}, not f32", name_of(g.dtype));
  const DecayTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(gate.a.rows(), args.heads), [&](int64_t, int64_t begin, int64_t end) {
    table.forward(args, rows_of(g), begin, end);
  });
}

void head_decay_backward(Exec& exec, const HeadDecay& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias) {
  if (nothing_in(gate.a)) return;
  const DecayArgs args = checked(gate);
  const int64_t rows = gate.a.rows();
  check_matrix(dg, rows, args.heads, "head_decay: dg");
  WEFT_CHECK(dg.dtype == DType::kF32, "head_decay: dg is {}, not f32", name_of(dg.dtype));
  check_matrix(da, rows, args.heads, "head_decay: da");
  float* a_log_sum = vector_of<float>(d_a_log, args.heads, "head_decay: d_a_log");
  float* bias_sum = vector_of<float>(d_dt_bias, args.heads, "head_decay: d_dt_bias");
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
