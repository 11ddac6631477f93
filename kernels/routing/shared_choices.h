#pragma once

#include "core/memory/exec.h"

// Choices of experts by ranks that share a micro-batch, for a limit on the rows of an expert that
// counts the tokens of all. A token is a row of 1 + 2k i32 words: its sequence, its k experts, and
// the bits of their k weights.
namespace weft::kernels {

constexpr int64_t choice_words(int64_t active) { return 1 + 2 * active; }

// words [rows, 1 + 2k] of index i32 [n, k] and weight [n, k], n <= rows; further rows are marked as
// no token. Token i is in sequence (first + i) / length; length 0: all are in one.
struct TokenSequences {
  int64_t first = 0, length = 0;
};
void pack_choices(Exec& exec, ConstView index, ConstView weight, const TokenSequences& sequences,
                  View words);
// index, weight [tokens, k] of the rows of `words` that are tokens, in the order of the
// micro-batch: by sequence, then as they come. place i32 [tokens]: row of words.
void unpack_choices(Exec& exec, ConstView words, View index, View weight, View place);
// kept [n, k] = index [n, k], or -1 where the pair has no row in `row` [tokens, k]. The n tokens
// are those whose place is first .. first + n - 1.
void keep_choices(Exec& exec, ConstView row, ConstView place, int64_t first, ConstView index,
                  View kept);

}  // namespace weft::kernels
