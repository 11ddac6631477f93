#pragma once

#include <span>
#include <string_view>

#include "core/memory/exec.h"

// Histories of kernels that look a fixed number of rows back: [documents, rows, width], older rows
// first, the rows before each document's first token. Inside kernels/.
namespace weft::kernels {

struct HistoryShape {
  std::span<const int32_t> documents;  // offsets of tokens, n + 1 entries
  int64_t rows, width;

  int64_t count() const { return static_cast<int64_t>(documents.size()) - 1; }
};

// Not given, or f32 or bf16 of that shape.
void check_history(const ConstView& history, const HistoryShape& shape, std::string_view name);

// leaving = the last rows of every document with its entering history (or zeros) before it. The two
// may be the same bytes.
void leave_history(Exec& exec, const HistoryShape& shape, ConstView entering, ConstView x,
                   View leaving);

// f32 [documents, 2 * rows, width]: the entering history of every document, then its first tokens
// (as many as there are, at most `rows`).
Tensor history_edges(Exec& exec, const HistoryShape& shape, ConstView entering, ConstView x);

}  // namespace weft::kernels
