#pragma once

#include <cstdint>
#include <vector>

#include "core/exec.h"

namespace weft {

// How the flat rows of a micro-batch form documents. Row borders of the batch are document borders too;
// nothing (state, attention, convolution, position) crosses one.
struct Sequence {
  std::vector<int32_t> documents;  // offsets, n + 1 entries from 0 to the number of tokens
  Tensor positions;                // i32 [tokens], counted from each document's start

  int64_t tokens() const { return documents.back(); }
  int64_t count() const { return static_cast<int64_t>(documents.size()) - 1; }
};

Sequence make_sequence(Exec& exec, std::vector<int32_t> documents);

// The offsets of the documents in tokens [begin, end) of a batch, counted from `begin`. Both ends must be
// document borders.
std::vector<int32_t> documents_between(const std::vector<int32_t>& documents, int64_t begin,
                                       int64_t end);

}  // namespace weft
