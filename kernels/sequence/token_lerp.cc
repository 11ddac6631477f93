#include "kernels/sequence/token_lerp.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/sequence/cpu/token_lerp.h"

namespace weft::kernels {
namespace {

bool same_for_all(ConstView mix) { return mix.shape.dims() == 1; }

void check(const TokenLerp& in) {
  const int64_t rows = in.x.rows(), width = in.x.width();
  check_real(in.x, "token_lerp: x");
  check_matrix(in.before, rows, width, "token_lerp: before");
  if (same_for_all(in.mix)) return check_numbers(in.mix, width, "token_lerp: mix");
  check_matrix(in.mix, rows, width, "token_lerp: mix");
}

}  // namespace

void token_lerp_forward(Exec& exec, const TokenLerp& in, View y) {
  if (nothing_in(in.x)) return;
  check(in);
  check_matrix(y, in.x.rows(), in.x.width(), "token_lerp: y");
  dispatch(exec,
           {.name = "token_lerp_forward",
            .type = in.x.dtype,
            .flops = 3 * elements(in.x),
            .read = bytes_of(in.x, in.before, in.mix),
            .written = bytes_of(y)},
           cpu::token_lerp_forward, in, y);
}

void token_lerp_backward(Exec& exec, const TokenLerp& in, ConstView dy,
                         const TokenLerpGradients& gradients) {
  if (nothing_in(in.x)) return;
  check(in);
  const int64_t rows = in.x.rows(), width = in.x.width();
  const bool sums = same_for_all(in.mix);
  check_matrix(dy, rows, width, "token_lerp: dy");
  check_f32_matrix(gradients.dx, rows, width, "token_lerp: dx");
  check_f32_matrix(gradients.d_before, rows, width, "token_lerp: d_before");
  if (sums) {
    check_numbers(gradients.d_mix, width, "token_lerp: d_mix");
  } else {
    check_matrix(gradients.d_mix, rows, width, "token_lerp: d_mix");
  }
  dispatch(exec,
           {.name = "token_lerp_backward",
            .type = in.x.dtype,
            .flops = 7 * elements(in.x),
            .read = bytes_of(in.x, in.before, in.mix, dy, gradients.dx, gradients.d_before) +
                    (sums ? bytes_of(gradients.d_mix) : 0),
            .written = bytes_of(gradients.dx, gradients.d_before, gradients.d_mix)},
           cpu::token_lerp_backward, in, dy, gradients);
}

}  // namespace weft::kernels
