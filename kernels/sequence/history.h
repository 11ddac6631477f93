#pragma once

#include <span>
#include <string_view>

#include "core/memory/exec.h"
#include "kernels/checks.h"

// Histories of kernels that look a fixed number of rows back: [documents, rows, width], older rows
// first, the rows before each document's first token. Inside kernels/.
namespace weft::kernels {

struct HistoryShape {
  std::span<const int32_t> documents;  // offsets of tokens, n + 1 entries
  int64_t rows, width;

  int64_t count() const { return static_cast<int64_t>(documents.size()) - 1; }
};

// Not given, or f32 or bf16 of that shape.
inline void check_history(const ConstView& history, const HistoryShape& shape,
                          std::string_view name) {
  if (given(history)) check_matrix(history, shape.count() * shape.rows, shape.width, name);
}

}  // namespace weft::kernels
