#include "kernels/rows/group_norm.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/group_norm.h"

namespace weft::kernels {
namespace {

GroupNormArgs checked(const GroupNorm& norm, ConstView x, ConstView weight,
                      const GroupNormStatistics& statistics) {
  check_real(x, "group_norm: x");
  WEFT_CHECK(norm.heads > 0 && x.width() % norm.heads == 0, "group_norm: {} heads in a width of {}",
             norm.heads, x.width());
  GroupNormArgs args{};
  args.x = rows_of(x);
  args.weight = vector_of<float>(weight, x.width(), "group_norm: weight");
  args.mean = vector_of<float>(statistics.mean.view(), x.rows() * norm.heads, "group_norm: mean");
  args.inv_deviation = vector_of<float>(statistics.inv_deviation.view(), x.rows() * norm.heads,
                                        "group_norm: inv_deviation");
  args.heads = norm.heads;
  args.width = x.width() / norm.heads;
  args.epsilon = norm.epsilon;
  return args;
}

}  // namespace

void group_norm_forward(Exec& exec, const GroupNorm& norm, ConstView x, ConstView weight,
                        ConstView bias, View y, const GroupNormStatistics& statistics) {
  if (nothing_in(x)) return;
  GroupNormArgs args = checked(norm, x, weight, statistics);
  check_matrix(y, x.rows(), x.width(), "group_norm: y");
  args.bias = vector_of<float>(bias, x.width(), "group_norm: bias");
  args.y = rows_of(y);
  const GroupNormTable& table = table_of<GroupNormTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void group_norm_backward(Exec& exec, const GroupNorm& norm, ConstView dy, ConstView x,
                         ConstView weight, const GroupNormStatistics& statistics,
                         const GroupNormGradients& gradients) {
  if (nothing_in(x)) return;
  GroupNormArgs args = checked(norm, x, weight, statistics);
  const int64_t rows = x.rows(), width = x.width();
  check_matrix(dy, rows, width, "group_norm: dy");
  check_matrix(gradients.dx, rows, width, "group_norm: dx");
  args.dy = rows_of(dy);
  args.y = rows_of(gradients.dx);
  const RowBlocks blocks = sum_blocks(rows, width);
  const Tensor weights = exec.scratch({blocks.count(), width}),
               biases = exec.scratch({blocks.count(), width});
  const GroupNormTable& table = table_of<GroupNormTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(args, begin, end, host<float>(weights) + b * width,
                   host<float>(biases) + b * width);
  });
  add_partials(exec, weights, vector_of<float>(gradients.d_weight, width, "group_norm: d_weight"));
  add_partials(exec, biases, vector_of<float>(gradients.d_bias, width, "group_norm: d_bias"));
}

}  // namespace weft::kernels
