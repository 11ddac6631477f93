#include "kernels/gates/phase.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/phase.h"

namespace weft::kernels {
namespace {

void check_turn(int64_t heads, ConstView phase, ConstView narrow, ConstView wide) {
  check_real(narrow, "turn: x");
  check_matrix(wide, narrow.rows(), 2 * narrow.width(), "turn: y");
  check_heads(narrow.width(), heads, "turn");
  if (given(phase)) check_f32_matrix(phase, narrow.rows(), narrow.width(), "turn: phase");
}

}  // namespace

void running_phase_forward(Exec& exec, std::span<const int32_t> documents, ConstView theta,
                           View phase) {
  if (nothing_in(theta)) return;
  check_real(theta, "running_phase: theta");
  check_f32_matrix(phase, theta.rows(), theta.width(), "running_phase: phase");
  check_documents(documents, theta.rows(), "running_phase");
  dispatch(exec,
           {.name = "running_phase_forward",
            .type = theta.dtype,
            .flops = 4 * elements(theta),
            .read = bytes_of(theta),
            .written = bytes_of(phase)},
           cpu::running_phase_forward, documents, theta, phase);
}

void running_phase_backward(Exec& exec, std::span<const int32_t> documents, ConstView d_phase,
                            ConstView d_last, View d_theta) {
  if (nothing_in(d_phase)) return;
  check_f32(d_phase, "running_phase: d_phase");
  check_matrix(d_theta, d_phase.rows(), d_phase.width(), "running_phase: d_theta");
  check_documents(documents, d_phase.rows(), "running_phase");
  check_optional_numbers(d_last, (static_cast<int64_t>(documents.size()) - 1) * d_phase.width(),
                         "running_phase: d_last");
  dispatch(exec,
           {.name = "running_phase_backward",
            .flops = elements(d_phase),
            .read = bytes_of(d_phase, d_last),
            .written = bytes_of(d_theta)},
           cpu::running_phase_backward, documents, d_phase, d_last, d_theta);
}

void turn_forward(Exec& exec, int64_t heads, ConstView phase, ConstView x, View y) {
  if (nothing_in(x)) return;
  check_turn(heads, phase, x, y);
  dispatch(exec,
           {.name = "turn_forward",
            .type = x.dtype,
            .flops = given(phase) ? 4 * elements(x) : 0,
            .read = bytes_of(phase, x),
            .written = bytes_of(y)},
           cpu::turn_forward, heads, phase, x, y);
}

void turn_backward(Exec& exec, int64_t heads, const TurnBackward& in) {
  if (nothing_in(in.dx)) return;
  check_turn(heads, in.phase, in.dx, in.dy);
  if (given(in.phase)) {
    check_matrix(in.x, in.dx.rows(), in.dx.width(), "turn: x");
    check_f32_matrix(in.d_phase, in.dx.rows(), in.dx.width(), "turn: d_phase");
  }
  dispatch(exec,
           {.name = "turn_backward",
            .type = in.dx.dtype,
            .flops = (given(in.phase) ? 10 : 1) * elements(in.dx),
            .read = bytes_of(in.phase, in.dy) + (given(in.phase) ? bytes_of(in.x, in.d_phase) : 0),
            .written = bytes_of(in.dx, in.d_phase)},
           cpu::turn_backward, heads, in);
}

}  // namespace weft::kernels
