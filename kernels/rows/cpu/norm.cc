#include "kernels/rows/cpu/norm.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/norm.h"

namespace weft::kernels::cpu {
namespace {

// The distance between the weights of two heads: 0 when they share them.
int64_t weight_stride(ConstView weight, int64_t width) {
  return weight.shape.elements() == width ? 0 : width;
}

}  // namespace

void rms_norm_forward(Exec& exec, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms) {
  const RmsForward args{rows_of(x),           rows_of(y), host<float>(weight),
                        host<float>(inv_rms), x.width(),  epsilon};
  const NormTable& table = table_of<NormTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.rms_forward(args, begin, end); });
}

void rms_norm_backward(Exec& exec, ConstView dy, ConstView x, ConstView weight, ConstView inv_rms,
                       ConstView residual, View dx, View d_weight) {
  const int64_t rows = x.rows(), width = x.width();
  const RmsBackward args{rows_of(dy), rows_of(x),          rows_of(residual),
                         rows_of(dx), host<float>(weight), host<float>(inv_rms),
                         width};
  const NormTable& table = table_of<NormTable>(exec.isa);
  const RowBlocks blocks = sum_blocks(rows, width);
  const Tensor partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.rms_backward(args, begin, end, host<float>(partial) + b * width);
  });
  add_partials(exec, partial, host<float>(d_weight));
}

void head_norm_forward(Exec& exec, const HeadNorm& norm, ConstView x, ConstView gate,
                       ConstView weight, View y, View inv_rms) {
  const int64_t rows = x.rows(), width = x.width() / norm.heads;
  const HeadForward args{
      rows_of(x),           rows_of(gate), rows_of(y), host<float>(weight),
      host<float>(inv_rms), norm.heads,    width,      weight_stride(weight, width),
      norm.epsilon,         norm.gate};
  const NormTable& table = table_of<NormTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, x.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.head_forward(args, begin, end); });
}

void head_norm_backward(Exec& exec, const HeadNorm& norm, ConstView dy, ConstView x, ConstView gate,
                        ConstView weight, ConstView inv_rms, View dx, View d_gate, View d_weight) {
  const int64_t rows = x.rows(), width = x.width() / norm.heads;
  const int64_t weights = weight.shape.elements();
  const HeadBackward args{rows_of(dy),
                          rows_of(x),
                          rows_of(gate),
                          rows_of(dx),
                          rows_of(d_gate),
                          host<float>(weight),
                          host<float>(inv_rms),
                          norm.heads,
                          width,
                          weight_stride(weight, width),
                          norm.gate};
  const NormTable& table = table_of<NormTable>(exec.isa);
  const RowBlocks blocks = sum_blocks(rows, x.width());
  const Tensor partial = exec.scratch({blocks.count(), weights});
  const int64_t scratch_size = kHeadScratch * width;
  const Tensor scratch = exec.scratch({exec.threads.size(), scratch_size});
  exec.threads.run_on(blocks.count(), [&](int64_t b, int thread) {
    table.head_backward(args, b * blocks.size, std::min(rows, (b + 1) * blocks.size),
                        host<float>(partial) + b * weights,
                        host<float>(scratch) + thread * scratch_size);
  });
  add_partials(exec, partial, host<float>(d_weight));
}

}  // namespace weft::kernels::cpu
