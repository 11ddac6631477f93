#include "kernels/gates/cpu/ssm.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/ssm.h"

namespace weft::kernels::cpu {
namespace {

HeadStepRows rows_of_heads(const HeadSteps& in) {
  const int64_t heads = in.dt.width();
  return {rows_of(in.x),        rows_of(in.dt), host<float>(in.a_log),
          host<float>(in.skip), heads,          in.x.width() / heads};
}

}  // namespace

void time_step_forward(Exec& exec, ConstView z, ConstView bias, View dt) {
  const TimeStepRows args{rows_of(z), host<float>(bias), z.width()};
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, row_blocks(z.rows(), args.width), [&](int64_t, int64_t begin, int64_t end) {
    table.step_forward(args, rows_of(dt), begin, end);
  });
}

void time_step_backward(Exec& exec, ConstView z, ConstView bias, ConstView d_dt, View dz,
                        View d_bias) {
  const TimeStepRows args{rows_of(z), host<float>(bias), z.width()};
  const RowBlocks blocks = sum_blocks(z.rows(), args.width);
  const Tensor parts = exec.scratch({blocks.count(), args.width});
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.step_backward(args, rows_of(d_dt), rows_of(dz), {begin, end, 0, args.width},
                        host<float>(parts) + b * args.width);
  });
  add_partials(exec, parts, host<float>(d_bias));
}

void head_steps_forward(Exec& exec, const HeadSteps& in, View v, View g) {
  const HeadStepRows args = rows_of_heads(in);
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.x.rows(), in.x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.heads_forward(args, rows_of(v), rows_of(g), begin, end);
  });
}

void add_head_skip(Exec& exec, const HeadSteps& in, View y) {
  const HeadStepRows args = rows_of_heads(in);
  const SsmTable& table = table_of<SsmTable>(exec.isa);
  for_blocks(exec, row_blocks(in.x.rows(), in.x.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.add_skip(args, rows_of(y), begin, end);
  });
}

void head_steps_backward(Exec& exec, const HeadSteps& in, const HeadStepsBackward& back) {
  const HeadStepRows args = rows_of_heads(in);
  const int64_t heads = args.heads;
  const RowBlocks blocks = sum_blocks(in.x.rows(), in.x.width());
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
  add_partials(exec, a_log, host<float>(back.d_a_log));
  add_partials(exec, skip, host<float>(back.d_skip));
}

}  // namespace weft::kernels::cpu
