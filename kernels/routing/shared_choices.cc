#include "kernels/routing/shared_choices.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/routing/cpu/shared_choices.h"

namespace weft::kernels {
namespace {

void check_words(ConstView words, int64_t active) {
  check_vector<int32_t>(words, words.rows() * choice_words(active), "choices: words");
}

}  // namespace

void pack_choices(Exec& exec, ConstView index, ConstView weight, const TokenSequences& sequences,
                  View words) {
  if (nothing_in(words)) return;
  const int64_t pairs = index.shape.elements();
  check_words(words, index.width());
  check_vector<int32_t>(index, pairs, "pack_choices: index");
  check_numbers(weight, pairs, "pack_choices: weight");
  WEFT_CHECK(index.rows() <= words.rows(), "pack_choices: {} tokens in {} rows", index.rows(),
             words.rows());
  dispatch(exec,
           {.name = "pack_choices",
            .type = DType::kI32,
            .read = bytes_of(index, weight),
            .written = bytes_of(words),
            .over = Over::kIndices},
           cpu::pack_choices, index, weight, sequences, words);
}

void unpack_choices(Exec& exec, ConstView words, View index, View weight, View place) {
  if (nothing_in(index)) return;
  const int64_t tokens = index.rows();
  check_words(words, index.width());
  check_vector<int32_t>(index, index.shape.elements(), "unpack_choices: index");
  check_numbers(weight, index.shape.elements(), "unpack_choices: weight");
  check_vector<int32_t>(place, tokens, "unpack_choices: place");
  dispatch(exec,
           {.name = "unpack_choices",
            .type = DType::kI32,
            .read = bytes_of(words),
            .written = bytes_of(index, weight, place),
            .over = Over::kIndices},
           cpu::unpack_choices, words, index, weight, place);
}

void keep_choices(Exec& exec, ConstView row, ConstView place, int64_t first, ConstView index,
                  View kept) {
  if (nothing_in(kept)) return;
  const int64_t pairs = kept.shape.elements();
  check_vector<int32_t>(row, row.shape.elements(), "keep_choices: row");
  check_vector<int32_t>(place, row.rows(), "keep_choices: place");
  check_vector<int32_t>(index, pairs, "keep_choices: index");
  check_vector<int32_t>(kept, pairs, "keep_choices: kept");
  dispatch(exec,
           {.name = "keep_choices",
            .type = DType::kI32,
            .read = bytes_of(row, place, index),
            .written = bytes_of(kept),
            .over = Over::kIndices},
           cpu::keep_choices, row, place, first, index, kept);
}

}  // namespace weft::kernels
