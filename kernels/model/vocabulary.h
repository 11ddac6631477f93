#pragma once

#include <cstdint>

#include "core/base/error.h"

namespace weft::kernels {

// Which entries of a vocabulary a table or a row of logits holds: those from `first`, of `whole`.
// Ids of other entries belong to other slices; ids beyond `whole` are mistakes.
struct VocabularySlice {
  int64_t first = 0;
  int64_t whole = 0;  // 0: there is no other part
};

[[noreturn]] inline void refuse_entry(const char* what, int32_t id, int64_t at,
                                      int64_t vocabulary) {
  throw ConfigError(
      "{} {} at position {} of the batch, but the vocabulary has entries 0 to {}; the data were "
      "made "
      "with another tokenizer, or the model's vocabulary is too small",
      what, id, at, vocabulary - 1);
}

}  // namespace weft::kernels
