#include "kernels/gates/ssm.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/ssm.h"

namespace weft::kernels {
namespace {

template <class V>
void check_f32_matrix(const V& x, int64_t rows, int64_t width, const char* name) {
  check_matrix(x, rows, width, name);
  WEFT_CHECK(x.dtype == DType::kF32, "{} is {}, not f32", name, name_of(x.dtype));
}

TimeStepRows checked(ConstView z, ConstView bias) {
  check_real(z, "time_step: z");
  return {rows_of(z), vector_of<float>(bias, z.width(), "time_step: bias"), z.width()};
}

HeadStepRows checked(const HeadSteps& in) {
  check_real(in.x, "head_steps: x");
  const int64_t heads = in.dt.width();
  check_f32_matrix(in.dt, in.x.rows(), heads, "head_steps: dt");
  WEFT_CHECK(heads > 0 && in.x.width() % heads == 0, "head_steps: {} channels, {} heads",
             in.x.width(), heads);
  return {rows_of(in.x),
          rows_of(in.dt),
          vector_of<float>(in.a_log, heads, "head_steps: a_log"),
          vector_of<float>(in.skip, heads, "head_steps: skip"),
          heads,
          in.x.width() / heads};
}

}  // namespace

void time_step_forward(Exec& exec, ConstView z, ConstView bias, View dt) {
  if (nothing_in(z)) return;
  const TimeStepRows args = checked(z, bias);
  check_f32_matrix(dt, z.rows(), args.width, "time_step: dt");
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, row_blocks(z.rows(), args.width), [&](int64_t, int64_t begin, int64_t end) {
    table.step_forward(args, rows_of(dt), begin, end);
  });
}

void time_step_backward(Exec& exec, ConstView z, ConstView bias, ConstView d_dt, View dz,
                        View d_bias) {
  if (nothing_in(z)) return;
  const TimeStepRows args = checked(z, bias);
  check_f32_matrix(d_dt, z.rows(), args.width, "time_step: d_dt");
  check_matrix(dz, z.rows(), args.width, "time_step: dz");
  const RowBlocks blocks = sum_blocks(z.rows(), args.width);
  const Tensor parts = exec.scratch({blocks.count(), args.width});
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.step_backward(args, rows_of(d_dt), rows_of(dz), {begin, end, 0, args.width},
                        host<float>(parts) + b * args.width);
  });
  add_partials(exec, parts, vector_of<float>(d_bias, args.width, "time_step: d_bias"));
}

void silu_gate_forward(Exec& exec, ConstView x, ConstView gate, View y) {
  const Extent extent = common_extent("silu_gate", x, gate, y);
  const GateRows args{rows_of(x), rows_of(gate), {}, rows_of(y), {}};
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_tiles(exec, extent, [&](const Box& box) { table.gate_forward(args, box); });
}

void silu_gate_backward(Exec& exec, ConstView x, ConstView gate, ConstView dy, View dx,
                        View d_gate) {
  const Extent extent = common_extent("silu_gate", x, gate, dy, dx, d_gate);
  const GateRows args{rows_of(x), rows_of(gate), rows_of(dy), rows_of(dx), rows_of(d_gate)};
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_tiles(exec, extent, [&](const Box& box) { table.gate_backward(args, box); });
}

void head_steps_forward(Exec& exec, const HeadSteps& in, View v, View g) {
  if (nothing_in(in.x)) return;
  const HeadStepRows args = checked(in);
  check_matrix(v, in.x.rows(), in.x.width(), "head_steps: v");
  check_f32_matrix(g, in.x.rows(), args.heads, "head_steps: g");
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.x.rows(), in.x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.heads_forward(args, rows_of(v), rows_of(g), begin, end);
  });
}

void add_head_skip(Exec& exec, const HeadSteps& in, View y) {
  if (nothing_in(in.x)) return;
  const HeadStepRows args = checked(in);
  check_matrix(y, in.x.rows(), in.x.width(), "head_steps: y");
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.x.rows(), in.x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.add_skip(args, rows_of(y), begin, end);
  });
}

void head_steps_backward(Exec& exec, const HeadSteps& in, const HeadStepsBackward& back) {
  if (nothing_in(in.x)) return;
  const HeadStepRows args = checked(in);
  const int64_t rows = in.x.rows(), width = in.x.width(), heads = args.heads;
  check_matrix(back.dv, rows, width, "head_steps: dv");
  check_matrix(back.dy, rows, width, "head_steps: dy");
  check_matrix(back.dx, rows, width, "head_steps: dx");
  check_f32_matrix(back.dg, rows, heads, "head_steps: dg");
  check_f32_matrix(back.d_dt, rows, heads, "head_steps: d_dt");
  const RowBlocks blocks = sum_blocks(rows, width);
  const Tensor a_log = exec.scratch({blocks.count(), heads}),
               skip = exec.scratch({blocks.count(), heads});
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.heads_backward(
        args,
        {rows_of(back.dv), rows_of(back.dg), rows_of(back.dy), rows_of(back.dx), rows_of(back.d_dt),
         host<float>(a_log) + b * heads, host<float>(skip) + b * heads},
        begin, end);
  });
  add_partials(exec, a_log, vector_of<float>(back.d_a_log, heads, "head_steps: d_a_log"));
  add_partials(exec, skip, vector_of<float>(back.d_skip, heads, "head_steps: d_skip"));
}

}  // namespace weft::kernels
