#include "kernels/sequence/cpu/token_lerp.h"

#include "kernels/cpu/tasks.h"
#include "kernels/sequence/cpu/isa/token_lerp.h"

namespace weft::kernels::cpu {
namespace {

bool same_for_all(ConstView mix) { return mix.shape.dims() == 1; }

TokenLerpArgs args_of(const TokenLerp& in) {
  TokenLerpArgs args{};
  args.x = rows_of(in.x);
  args.before = rows_of(in.before);
  args.width = in.x.width();
  args.mix = rows_of(in.mix);
  if (same_for_all(in.mix)) args.mix.stride = 0;
  return args;
}

}  // namespace

void token_lerp_forward(Exec& exec, const TokenLerp& in, View y) {
  TokenLerpArgs args = args_of(in);
  args.y = rows_of(y);
  const TokenLerpTable& table = table_of<TokenLerpTable>(exec.isa);
  for_blocks(exec, row_blocks(in.x.rows(), args.width),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void token_lerp_backward(Exec& exec, const TokenLerp& in, ConstView dy,
                         const TokenLerpGradients& gradients) {
  TokenLerpArgs args = args_of(in);
  const int64_t rows = in.x.rows(), width = args.width;
  args.dy = rows_of(dy);
  args.dx = host<float>(gradients.dx);
  args.dx_stride = gradients.dx.row_stride;
  args.d_before = host<float>(gradients.d_before);
  args.d_before_stride = gradients.d_before.row_stride;
  const TokenLerpTable& table = table_of<TokenLerpTable>(exec.isa);
  if (!same_for_all(in.mix)) {
    args.y = rows_of(gradients.d_mix);
    for_blocks(exec, row_blocks(rows, width), [&](int64_t, int64_t begin, int64_t end) {
      table.backward(args, begin, end, nullptr);
    });
    return;
  }
  const RowBlocks blocks = sum_blocks(rows, width);
  const Tensor partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(args, begin, end, host<float>(partial) + b * width);
  });
  add_partials(exec, partial, host<float>(gradients.d_mix));
}

}  // namespace weft::kernels::cpu
