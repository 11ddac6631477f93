#include "kernels/gates/ffn_activation.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/gates/cpu/ffn_activation.h"

namespace weft::kernels {

void ffn_activation_forward(Exec& exec, FfnActivation a, ConstView pre, ConstView scale, View h) {
  if (nothing_in(h)) return;
  const int64_t rows = h.rows(), width = h.width();
  check_real(h, "ffn_activation: h");
  check_matrix(pre, rows, pre_width(a, width), "ffn_activation: pre");
  check_optional_numbers(scale, rows, "ffn_activation: scale");
  dispatch(exec,
           {.name = "ffn_activation_forward",
            .type = pre.dtype,
            .flops = 6 * elements(h),
            .read = bytes_of(pre, scale),
            .written = bytes_of(h)},
           cpu::ffn_activation_forward, a, pre, scale, h);
}

void ffn_activation_backward(Exec& exec, FfnActivation a, const FfnActivationBackward& v) {
  if (nothing_in(v.dh)) return;
  const int64_t rows = v.dh.rows(), width = v.dh.width();
  check_real(v.dh, "ffn_activation: dh");
  check_matrix(v.pre, rows, pre_width(a, width), "ffn_activation: pre");
  check_matrix(v.d_pre, rows, pre_width(a, width), "ffn_activation: d_pre");
  if (given(v.h)) check_matrix(v.h, rows, width, "ffn_activation: h");
  WEFT_CHECK(given(v.d_scale) || !given(v.scale),
             "ffn_activation: a scale, but no place for its gradient");
  check_optional_numbers(v.scale, rows, "ffn_activation: scale");
  check_optional_numbers(v.d_scale, rows, "ffn_activation: d_scale");
  dispatch(exec,
           {.name = "ffn_activation_backward",
            .type = v.pre.dtype,
            .flops = (gated(a) ? 16 : 12) * elements(v.dh),
            .read = bytes_of(v.pre, v.scale, v.dh),
            .written = bytes_of(v.d_pre, v.d_scale, v.h)},
           cpu::ffn_activation_backward, a, v);
}

}  // namespace weft::kernels
