#include "kernels/model/cpu/cross_entropy.h"

#include "kernels/cpu/tasks.h"
#include "kernels/model/cpu/isa/cross_entropy.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kParts = 3;  // numbers of a row

const int32_t* known_targets(ConstView targets, int64_t vocabulary) {
  const int32_t* ids = host<int32_t>(targets);
  for (int64_t i = 0; i < targets.shape.elements(); ++i) {
    if (ids[i] >= vocabulary) refuse_entry("cross_entropy: target", ids[i], i, vocabulary);
  }
  return ids;
}

}  // namespace

void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits) {
  const int64_t width = logits.width();
  const CrossEntropy args{
      rows_of(logits), known_targets(targets, width), host<float>(losses), rows_of(d_logits), width,
      grad_scale};
  const CrossEntropyTable& table = table_of<CrossEntropyTable>(exec.isa);
  for_blocks(exec, row_blocks(logits.rows(), width),
             [&](int64_t, int64_t begin, int64_t end) { table.rows(args, begin, end); });
}

void cross_entropy_parts(Exec& exec, ConstView logits, ConstView targets,
                         const VocabularySlice& slice, View parts) {
  const CrossEntropySlice args{.logits = rows_of(logits),
                               .targets = known_targets(targets, slice.whole),
                               .width = logits.width(),
                               .first = slice.first,
                               .parts = host<float>(parts)};
  const CrossEntropyTable& table = table_of<CrossEntropyTable>(exec.isa);
  for_blocks(exec, row_blocks(logits.rows(), logits.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.parts(args, begin, end); });
}

void cross_entropy_slice(Exec& exec, const SlicedCrossEntropy& call, const VocabularySlice& slice) {
  const int64_t rows = call.logits.rows(), width = call.logits.width();
  const CrossEntropySlice args{.logits = rows_of(call.logits),
                               .targets = known_targets(call.targets, slice.whole),
                               .width = width,
                               .first = slice.first,
                               .all = host<float>(call.all),
                               .ranks = call.all.shape.elements() / (rows * kParts),
                               .rows = rows,
                               .losses = host<float>(call.losses),
                               .d_logits = rows_of(call.d_logits),
                               .grad_scale = call.grad_scale};
  const CrossEntropyTable& table = table_of<CrossEntropyTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.slice(args, begin, end); });
}

}  // namespace weft::kernels::cpu
