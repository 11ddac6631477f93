#include "kernels/gates/cpu/ffn_activation.h"

#include "kernels/cpu/tasks.h"
#include "kernels/gates/cpu/isa/ffn_activation.h"
#include "kernels/gates/cpu/isa/swiglu.h"

namespace weft::kernels::cpu {

void ffn_activation_forward(Exec& exec, FfnActivation a, ConstView pre, ConstView scale, View h) {
  const Hidden args{a, rows_of(pre), {}, host<float>(scale), rows_of(h), {}, nullptr, h.width()};
  const auto forward = gated(a) ? table_of<SwigluTable>(exec.isa).forward
                                : table_of<FfnActivationTable>(exec.isa).forward;
  for_blocks(exec, row_blocks(h.rows(), h.width()),
             [&](int64_t, int64_t begin, int64_t end) { forward(args, begin, end); });
}

void ffn_activation_backward(Exec& exec, FfnActivation a, const FfnActivationBackward& v) {
  const Hidden args{a,
                    rows_of(v.pre),
                    rows_of(v.dh),
                    host<float>(v.scale),
                    rows_of(v.h),
                    rows_of(v.d_pre),
                    host<float>(v.d_scale),
                    v.dh.width()};
  const auto backward = gated(a) ? table_of<SwigluTable>(exec.isa).backward
                                 : table_of<FfnActivationTable>(exec.isa).backward;
  for_blocks(exec, row_blocks(v.dh.rows(), v.dh.width()),
             [&](int64_t, int64_t begin, int64_t end) { backward(args, begin, end); });
}

}  // namespace weft::kernels::cpu
