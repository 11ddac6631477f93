#include "kernels/norm.h"

#include "kernels/cpu/norm.h"
#include "kernels/launch.h"

namespace weft::kernels {
namespace {

const NormTable& table_of(Isa isa) {
  return by_isa(isa, [](auto tag) -> const NormTable& { return norm_table(tag); });
}

GateKind kind_of(GateActivation gate) {
  switch (gate) {
    case GateActivation::kSilu:
      return GateKind::kSilu;
    case GateActivation::kSigmoid:
      return GateKind::kSigmoid;
    default:
      return GateKind::kNone;
  }
}

// The distance between the weights of two heads: 0 when they share them.
int64_t check_heads(const HeadNorm& norm, ConstView x, ConstView gate, ConstView weight) {
  check_real(x, "head_norm: x");
  WEFT_CHECK(norm.heads > 0 && x.width() % norm.heads == 0, "head_norm: {} channels, {} heads",
             x.width(), norm.heads);
  WEFT_CHECK(given(gate) == (norm.gate != GateActivation::kNone) || x.rows() == 0,
             "head_norm: a gate and its activation are given together or not at all");
  if (given(gate)) check_matrix(gate, x.rows(), x.width(), "head_norm: gate");
  const int64_t width = x.width() / norm.heads, weights = weight.shape.elements();
  WEFT_CHECK(weights == width || weights == x.width(),
             "head_norm: {} weights for {} heads of width {}", weights, norm.heads, width);
  return weights == width ? 0 : width;
}

}  // namespace

void rms_norm_forward(Exec& exec, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms) {
  check_real(x, "rms_norm: x");
  const int64_t rows = x.rows(), width = x.width();
  if (nothing_in(x)) return;
  check_matrix(y, rows, width, "rms_norm: y");
  const RmsForward args{rows_of(x),
                        rows_of(y),
                        vector_of<float>(weight, width, "rms_norm: weight"),
                        vector_of<float>(inv_rms, rows, "rms_norm: inv_rms"),
                        width,
                        epsilon};
  const NormTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.rms_forward(args, begin, end); });
}

void rms_norm_backward(Exec& exec, ConstView dy, ConstView x, ConstView weight, ConstView inv_rms,
                       ConstView residual, View dx, View d_weight) {
  check_real(x, "rms_norm: x");
  const int64_t rows = x.rows(), width = x.width();
  if (nothing_in(x)) return;
  check_matrix(dy, rows, width, "rms_norm: dy");
  check_matrix(dx, rows, width, "rms_norm: dx");
  if (given(residual)) check_matrix(residual, rows, width, "rms_norm: residual");
  const RmsBackward args{rows_of(dy),
                         rows_of(x),
                         rows_of(residual),
                         rows_of(dx),
                         vector_of<float>(weight, width, "rms_norm: weight"),
                         vector_of<float>(inv_rms, rows, "rms_norm: inv_rms"),
                         width};
  float* sum = vector_of<float>(d_weight, width, "rms_norm: d_weight");
  const NormTable& table = table_of(exec.isa);
  const RowBlocks blocks = sum_blocks(rows, width);
  const Tensor partial = exec.scratch({blocks.count(), width});
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.rms_backward(args, begin, end, partial.data<float>() + b * width);
  });
  add_partials(exec, partial, sum);
}

void head_norm_forward(Exec& exec, const HeadNorm& norm, ConstView x, ConstView gate,
                       ConstView weight, View y, View inv_rms) {
  const int64_t rows = x.rows(), width = x.width();
  const int64_t weight_stride = check_heads(norm, x, gate, weight);
  if (nothing_in(x)) return;
  check_matrix(y, rows, width, "head_norm: y");
  const HeadForward args{rows_of(x),
                         rows_of(gate),
                         rows_of(y),
                         vector_of<float>(weight, weight.shape.elements(), "head_norm: weight"),
                         vector_of<float>(inv_rms, rows * norm.heads, "head_norm: inv_rms"),
                         norm.heads,
                         width / norm.heads,
                         weight_stride,
                         norm.epsilon,
                         kind_of(norm.gate)};
  const NormTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.head_forward(args, begin, end); });
}

void head_norm_backward(Exec& exec, const HeadNorm& norm, ConstView dy, ConstView x, ConstView gate,
                        ConstView weight, ConstView inv_rms, View dx, View d_gate, View d_weight) {
  const int64_t rows = x.rows(), width = x.width(), weights = weight.shape.elements();
  const int64_t weight_stride = check_heads(norm, x, gate, weight);
  if (nothing_in(x)) return;
  check_matrix(dy, rows, width, "head_norm: dy");
  check_matrix(dx, rows, width, "head_norm: dx");
  if (given(gate)) check_matrix(d_gate, rows, width, "head_norm: d_gate");
  const HeadBackward args{rows_of(dy),
                          rows_of(x),
                          rows_of(gate),
                          rows_of(dx),
                          rows_of(d_gate),
                          vector_of<float>(weight, weights, "head_norm: weight"),
                          vector_of<float>(inv_rms, rows * norm.heads, "head_norm: inv_rms"),
                          norm.heads,
                          width / norm.heads,
                          weight_stride,
                          kind_of(norm.gate)};
  float* sum = vector_of<float>(d_weight, weights, "head_norm: d_weight");
  const NormTable& table = table_of(exec.isa);
  const RowBlocks blocks = sum_blocks(rows, width);
  const Tensor partial = exec.scratch({blocks.count(), weights});
  const int64_t scratch_size = kHeadScratch * args.width;
  const Tensor scratch = exec.scratch({exec.threads.size(), scratch_size});
  exec.threads.run_on(blocks.count(), [&](int64_t b, int thread) {
    table.head_backward(args, b * blocks.size, std::min(rows, (b + 1) * blocks.size),
                        partial.data<float>() + b * weights,
                        scratch.data<float>() + thread * scratch_size);
  });
  add_partials(exec, partial, sum);
}

}  // namespace weft::kernels
