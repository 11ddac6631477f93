#include "kernels/sequence/token_lerp.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/sequence/cpu/isa/token_lerp.h"

namespace weft::kernels {
namespace {

bool same_for_all(ConstView mix) { return mix.shape.dims() == 1; }

TokenLerpArgs checked(const TokenLerp& in) {
  check_real(in.x, "token_lerp: x");
  const int64_t rows = in.x.rows(), width = in.x.width();
  check_matrix(in.before, rows, width, "token_lerp: before");
  TokenLerpArgs args{};
  args.x = rows_of(in.x);
  args.before = rows_of(in.before);
  args.width = width;
  if (same_for_all(in.mix)) {
    args.mix = {vector_of<float>(in.mix, width, "token_lerp: mix"), 0, DType::kF32};
  } else {
    check_matrix(in.mix, rows, width, "token_lerp: mix");
    args.mix = rows_of(in.mix);
  }
  return args;
}

float* sums_of(View gradient, int64_t rows, int64_t width, std::string_view name) {
  check_matrix(gradient, rows, width, name);
  return host<float>(gradient);
}

}  // namespace

void token_lerp_forward(Exec& exec, const TokenLerp& in, View y) {
  if (nothing_in(in.x)) return;
  TokenLerpArgs args = checked(in);
  check_matrix(y, in.x.rows(), in.x.width(), "token_lerp: y");
  args.y = rows_of(y);
  const TokenLerpTable& table = table_of<TokenLerpTable>(exec.isa);
  for_blocks(exec, row_blocks(in.x.rows(), args.width),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void token_lerp_backward(Exec& exec, const TokenLerp& in, ConstView dy,
                         const TokenLerpGradients& gradients) {
  if (nothing_in(in.x)) return;
  TokenLerpArgs args = checked(in);
  const int64_t rows = in.x.rows(), width = args.width;
  check_matrix(dy, rows, width, "token_lerp: dy");
  args.dy = rows_of(dy);
  args.dx = sums_of(gradients.dx, rows, width, "token_lerp: dx");
  args.dx_stride = gradients.dx.row_stride;
  args.d_before = sums_of(gradients.d_before, rows, width, "token_lerp: d_before");
  args.d_before_stride = gradients.d_before.row_stride;
  const TokenLerpTable& table = table_of<TokenLerpTable>(exec.isa);
  if (!same_for_all(in.mix)) {
    check_matrix(gradients.d_mix, rows, width, "token_lerp: d_mix");
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
  add_partials(exec, partial, vector_of<float>(gradients.d_mix, width, "token_lerp: d_mix"));
}

}  // namespace weft::kernels
