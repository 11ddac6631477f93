#include "kernels/model/embedding.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/model/cpu/embedding.h"

namespace weft::kernels {

void embedding_forward(Exec& exec, ConstView tokens, ConstView table, View y,
                       const VocabularySlice& slice) {
  if (nothing_in(y)) return;
  check_real(y, "embedding: y");
  check_matrix(table, table.rows(), y.width(), "embedding: table");
  check_vector<int32_t>(tokens, y.rows(), "embedding: tokens");
  dispatch(exec,
           {.name = "embedding_forward",
            .type = y.dtype,
            .read = bytes_of(tokens) + y.shape.elements() * size_of(table.dtype),
            .written = bytes_of(y)},
           cpu::embedding_forward, tokens, table, y, slice);
}

void embedding_backward(Exec& exec, ConstView tokens, ConstView dy, View d_table,
                        const VocabularySlice& slice) {
  if (nothing_in(dy)) return;
  check_real(dy, "embedding: dy");
  check_f32_matrix(d_table, d_table.rows(), dy.width(), "embedding: d_table");
  check_vector<int32_t>(tokens, dy.rows(), "embedding: tokens");
  const int64_t sums = dy.shape.elements() * size_of(DType::kF32);
  dispatch(exec,
           {.name = "embedding_backward",
            .type = dy.dtype,
            .flops = elements(dy),
            .read = bytes_of(tokens, dy) + sums,
            .written = sums},
           cpu::embedding_backward, tokens, dy, d_table, slice);
}

}  // namespace weft::kernels
