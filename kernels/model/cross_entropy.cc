#include "kernels/model/cross_entropy.h"

#include "kernels/cpu/tasks.h"
#include "kernels/model/cpu/isa/cross_entropy.h"

namespace weft::kernels {
namespace {

const int32_t* check_targets(ConstView targets, int64_t rows, int64_t vocabulary) {
  const int32_t* ids = vector_of<int32_t>(targets, rows, "cross_entropy: targets");
  for (int64_t i = 0; i < rows; ++i) {
    if (ids[i] >= vocabulary) refuse_entry("cross_entropy: target", ids[i], i, vocabulary);
  }
  return ids;
}

constexpr int64_t kParts = 3;  // numbers of a row

}  // namespace

void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits) {
  if (nothing_in(logits)) return;
  const int64_t rows = logits.rows(), width = logits.width();
  WEFT_CHECK(logits.dtype == DType::kF32, "cross_entropy: logits are {}", name_of(logits.dtype));
  if (given(d_logits)) check_matrix(d_logits, rows, width, "cross_entropy: d_logits");
  const CrossEntropy args{rows_of(logits),
                          check_targets(targets, rows, width),
                          vector_of<float>(losses, rows, "cross_entropy: losses"),
                          rows_of(d_logits),
                          width,
                          grad_scale};
  const CrossEntropyTable& table = table_of<CrossEntropyTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.rows(args, begin, end); });
}

void cross_entropy_parts(Exec& exec, ConstView logits, ConstView targets,
                         const VocabularySlice& slice, View parts) {
  const int64_t rows = logits.rows(), width = logits.width();
  WEFT_CHECK(logits.dtype == DType::kF32, "cross_entropy: logits are {}", name_of(logits.dtype));
  const CrossEntropySlice args{.logits = rows_of(logits),
                               .targets = check_targets(targets, rows, slice.whole),
                               .width = width,
                               .first = slice.first,
                               .parts = vector_of<float>(parts, rows * kParts, "parts")};
  const CrossEntropyTable& table = table_of<CrossEntropyTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.parts(args, begin, end); });
}

void cross_entropy_slice(Exec& exec, const SlicedCrossEntropy& call, const VocabularySlice& slice) {
  const int64_t rows = call.logits.rows(), width = call.logits.width();
  if (given(call.d_logits)) check_matrix(call.d_logits, rows, width, "cross_entropy: d_logits");
  const int64_t ranks = call.all.shape.elements() / std::max<int64_t>(1, rows * kParts);
  const CrossEntropySlice args{
      .logits = rows_of(call.logits),
      .targets = check_targets(call.targets, rows, slice.whole),
      .width = width,
      .first = slice.first,
      .all = vector_of<float>(call.all, ranks * rows * kParts, "cross_entropy: all parts"),
      .ranks = ranks,
      .rows = rows,
      .losses = vector_of<float>(call.losses, rows, "cross_entropy: losses"),
      .d_logits = rows_of(call.d_logits),
      .grad_scale = call.grad_scale};
  const CrossEntropyTable& table = table_of<CrossEntropyTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.slice(args, begin, end); });
}

}  // namespace weft::kernels
