#include "kernels/rows/cpu/group_norm.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/group_norm.h"

namespace weft::kernels::cpu {
namespace {

GroupNormArgs args_of(const GroupNorm& norm, ConstView x, ConstView weight,
                      const GroupNormStatistics& statistics) {
  GroupNormArgs args{};
  args.x = rows_of(x);
  args.weight = host<float>(weight);
  args.mean = host<float>(statistics.mean);
  args.inv_deviation = host<float>(statistics.inv_deviation);
  args.heads = norm.heads;
  args.width = x.width() / norm.heads;
  args.epsilon = norm.epsilon;
  return args;
}

}  // namespace

void group_norm_forward(Exec& exec, const GroupNorm& norm, ConstView x, ConstView weight,
                        ConstView bias, View y, const GroupNormStatistics& statistics) {
  GroupNormArgs args = args_of(norm, x, weight, statistics);
  args.bias = host<float>(bias);
  args.y = rows_of(y);
  const GroupNormTable& table = table_of<GroupNormTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void group_norm_backward(Exec& exec, const GroupNorm& norm, ConstView dy, ConstView x,
                         ConstView weight, const GroupNormStatistics& statistics,
                         const GroupNormGradients& gradients) {
  GroupNormArgs args = args_of(norm, x, weight, statistics);
  const int64_t width = x.width();
  args.dy = rows_of(dy);
  args.y = rows_of(gradients.dx);
  const RowBlocks blocks = sum_blocks(x.rows(), width);
  const Tensor weights = exec.scratch({blocks.count(), width}),
               biases = exec.scratch({blocks.count(), width});
  const GroupNormTable& table = table_of<GroupNormTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(args, begin, end, host<float>(weights) + b * width,
                   host<float>(biases) + b * width);
  });
  add_partials(exec, weights, host<float>(gradients.d_weight));
  add_partials(exec, biases, host<float>(gradients.d_bias));
}

}  // namespace weft::kernels::cpu
