#include "kernels/gates/ffn_activation.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/activation.h"
#include "kernels/gates/cpu/isa/ffn_activation.h"

namespace weft::kernels {
namespace {}  // namespace

void ffn_activation_forward(Exec& exec, FfnActivation a, ConstView pre, ConstView scale, View h) {
  if (gated(a)) return swiglu_forward(exec, pre, scale, h);
  if (nothing_in(h)) return;
  const int64_t rows = h.rows(), width = h.width();
  check_real(h, "ffn_activation: h");
  check_matrix(pre, rows, width, "ffn_activation: pre");
  const PlainHidden args{a,          rows_of(pre),
                         {},         optional_vector<float>(scale, rows, "ffn_activation: scale"),
                         rows_of(h), {},
                         nullptr,    width};
  const FfnActivationTable& table = table_of<FfnActivationTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void ffn_activation_backward(Exec& exec, FfnActivation a, const FfnActivationBackward& v) {
  if (gated(a)) return swiglu_backward(exec, v.pre, v.scale, v.dh, v.d_pre, v.d_scale, v.h);
  if (nothing_in(v.dh)) return;
  const int64_t rows = v.dh.rows(), width = v.dh.width();
  check_real(v.dh, "ffn_activation: dh");
  check_matrix(v.pre, rows, width, "ffn_activation: pre");
  check_matrix(v.d_pre, rows, width, "ffn_activation: d_pre");
  if (given(v.h)) check_matrix(v.h, rows, width, "ffn_activation: h");
  WEFT_CHECK(given(v.d_scale) || !given(v.scale),
             "ffn_activation: a scale, but no place for its gradient");
  float* sums =
      given(v.d_scale) ? vector_of<float>(v.d_scale, rows, "ffn_activation: d_scale") : nullptr;
  const PlainHidden args{a,
                         rows_of(v.pre),
                         rows_of(v.dh),
                         optional_vector<float>(v.scale, rows, "ffn_activation: scale"),
                         rows_of(v.h),
                         rows_of(v.d_pre),
                         sums,
                         width};
  const FfnActivationTable& table = table_of<FfnActivationTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

}  // namespace weft::kernels
