#include "kernels/cross_entropy.h"

#include "kernels/cpu/cross_entropy.h"
#include "kernels/launch.h"

namespace weft::kernels {

void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits) {
  if (nothing_in(logits)) return;
  const int64_t rows = logits.rows(), width = logits.width();
  WEFT_CHECK(logits.dtype == DType::kF32, "cross_entropy: logits are {}", name_of(logits.dtype));
  if (given(d_logits)) check_matrix(d_logits, rows, width, "cross_entropy: d_logits");
  const int32_t* ids = vector_of<int32_t>(targets, rows, "cross_entropy: targets");
  for (int64_t i = 0; i < rows; ++i) {
    if (ids[i] >= width) {
      throw ConfigError(
          "cross_entropy: target {} in row {}, but the vocabulary has entries 0 to {}; the data "
          "were "
          "made with another tokenizer, or the model's vocabulary is too small",
          ids[i], i, width - 1);
    }
  }
  const CrossEntropy args{
      rows_of(logits),   ids,   vector_of<float>(losses, rows, "cross_entropy: losses"),
      rows_of(d_logits), width, grad_scale};
  const CrossEntropyTable& table = by_isa(
      exec.isa, [](auto tag) -> const CrossEntropyTable& { return cross_entropy_table(tag); });
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { table.rows(args, begin, end); });
}

}  // namespace weft::kernels
