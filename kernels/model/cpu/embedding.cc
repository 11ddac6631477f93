#include "kernels/model/cpu/embedding.h"

#include "kernels/cpu/tasks.h"
#include "kernels/model/cpu/isa/embedding.h"

namespace weft::kernels::cpu {
namespace {

const int32_t* known_tokens(ConstView tokens, int64_t rows, int64_t entries,
                            const VocabularySlice& slice) {
  const int64_t vocabulary = slice.whole > 0 ? slice.whole : entries;
  const int32_t* ids = host<int32_t>(tokens);
  for (int64_t i = 0; i < rows; ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) refuse_entry("embedding: token", ids[i], i, vocabulary);
  }
  return ids;
}

}  // namespace

void embedding_forward(Exec& exec, ConstView tokens, ConstView table, View y,
                       const VocabularySlice& slice) {
  const int64_t rows = y.rows(), width = y.width();
  const EmbeddingForward args{known_tokens(tokens, rows, table.rows(), slice),
                              rows_of(table),
                              rows_of(y),
                              width,
                              slice.first,
                              table.rows()};
  const EmbeddingTable& kernels = table_of<EmbeddingTable>(exec.isa);
  for_blocks(exec, row_blocks(rows, width),
             [&](int64_t, int64_t begin, int64_t end) { kernels.forward(args, begin, end); });
}

// Tasks are column blocks: each walks all tokens in order, so no entry is written by two tasks and
// frequent tokens do not make one task longer than another.
void embedding_backward(Exec& exec, ConstView tokens, ConstView dy, View d_table,
                        const VocabularySlice& slice) {
  constexpr int64_t kColumns = 128;
  const int64_t rows = dy.rows(), width = dy.width();
  const EmbeddingBackward args{known_tokens(tokens, rows, d_table.rows(), slice), rows_of(dy),
                               rows_of(d_table), slice.first, d_table.rows()};
  const EmbeddingTable& kernels = table_of<EmbeddingTable>(exec.isa);
  exec.threads.run((width + kColumns - 1) / kColumns, [&](int64_t i) {
    const int64_t left = i * kColumns;
    kernels.backward(args, {0, rows, left, std::min(width, left + kColumns)});
  });
}

}  // namespace weft::kernels::cpu
