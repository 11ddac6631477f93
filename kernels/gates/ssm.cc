#include "kernels/gates/ssm.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/ssm.h"

namespace weft::kernels {
namespace {

void check(const HeadSteps& in) {
  const int64_t heads = in.dt.width();
  check_real(in.x, "head_steps: x");
  check_f32_matrix(in.dt, in.x.rows(), heads, "head_steps: dt");
  check_heads(in.x.width(), heads, "head_steps");
  check_numbers(in.a_log, heads, "head_steps: a_log");
  check_numbers(in.skip, heads, "head_steps: skip");
}

}  // namespace

void time_step_forward(Exec& exec, ConstView z, ConstView bias, View dt) {
  if (nothing_in(z)) return;
  check_real(z, "time_step: z");
  check_numbers(bias, z.width(), "time_step: bias");
  check_f32_matrix(dt, z.rows(), z.width(), "time_step: dt");
  dispatch(exec,
           {.name = "time_step_forward",
            .type = z.dtype,
            .flops = 8 * elements(z),
            .read = bytes_of(z, bias),
            .written = bytes_of(dt)},
           cpu::time_step_forward, z, bias, dt);
}

void time_step_backward(Exec& exec, ConstView z, ConstView bias, ConstView d_dt, View dz,
                        View d_bias) {
  if (nothing_in(z)) return;
  check_real(z, "time_step: z");
  check_numbers(bias, z.width(), "time_step: bias");
  check_f32_matrix(d_dt, z.rows(), z.width(), "time_step: d_dt");
  check_matrix(dz, z.rows(), z.width(), "time_step: dz");
  check_numbers(d_bias, z.width(), "time_step: d_bias");
  dispatch(exec,
           {.name = "time_step_backward",
            .type = z.dtype,
            .flops = 6 * elements(z),
            .read = bytes_of(z, bias, d_dt, d_bias),
            .written = bytes_of(dz, d_bias)},
           cpu::time_step_backward, z, bias, d_dt, dz, d_bias);
}

void head_steps_forward(Exec& exec, const HeadSteps& in, View v, View g) {
  if (nothing_in(in.x)) return;
  check(in);
  check_matrix(v, in.x.rows(), in.x.width(), "head_steps: v");
  check_f32_matrix(g, in.x.rows(), in.dt.width(), "head_steps: g");
  dispatch(exec,
           {.name = "head_steps_forward",
            .type = in.x.dtype,
            .flops = elements(in.x) + 3 * elements(in.dt),
            .read = bytes_of(in.x, in.dt, in.a_log),
            .written = bytes_of(v, g)},
           cpu::head_steps_forward, in, v, g);
}

void add_head_skip(Exec& exec, const HeadSteps& in, View y) {
  if (nothing_in(in.x)) return;
  check(in);
  check_matrix(y, in.x.rows(), in.x.width(), "head_steps: y");
  dispatch(exec,
           {.name = "add_head_skip",
            .type = in.x.dtype,
            .flops = 2 * elements(in.x),
            .read = bytes_of(in.x, in.skip, y),
            .written = bytes_of(y)},
           cpu::add_head_skip, in, y);
}

void head_steps_backward(Exec& exec, const HeadSteps& in, const HeadStepsBackward& back) {
  if (nothing_in(in.x)) return;
  check(in);
  const int64_t rows = in.x.rows(), width = in.x.width(), heads = in.dt.width();
  check_matrix(back.dv, rows, width, "head_steps: dv");
  check_matrix(back.dy, rows, width, "head_steps: dy");
  check_matrix(back.dx, rows, width, "head_steps: dx");
  check_f32_matrix(back.dg, rows, heads, "head_steps: dg");
  check_f32_matrix(back.d_dt, rows, heads, "head_steps: d_dt");
  check_numbers(back.d_a_log, heads, "head_steps: d_a_log");
  check_numbers(back.d_skip, heads, "head_steps: d_skip");
  dispatch(exec,
           {.name = "head_steps_backward",
            .type = in.x.dtype,
            .flops = 7 * elements(in.x) + 6 * elements(in.dt),
            .read = bytes_of(in.x, in.dt, in.a_log, in.skip, back.dv, back.dg, back.dy,
                             back.d_a_log, back.d_skip),
            .written = bytes_of(back.dx, back.d_dt, back.d_a_log, back.d_skip)},
           cpu::head_steps_backward, in, back);
}

}  // namespace weft::kernels
