#include "kernels/routing/cpu/shared_choices.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "core/host_access.h"

namespace weft::kernels::cpu {
namespace {

constexpr int32_t kNoSequence = std::numeric_limits<int32_t>::max();

// Rows that are tokens, in the order of the micro-batch.
std::vector<int32_t> in_order(const int32_t* words, int64_t rows, int64_t row_words) {
  std::vector<int32_t> order;
  for (int64_t r = 0; r < rows; ++r) {
    if (words[r * row_words] != kNoSequence) order.push_back(static_cast<int32_t>(r));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return words[a * row_words] < words[b * row_words];
  });
  return order;
}

}  // namespace

void pack_choices(Exec&, ConstView index, ConstView weight, const TokenSequences& sequences,
                  View words) {
  const int64_t tokens = index.rows(), active = index.width();
  int32_t* row = host<int32_t>(words);
  std::fill_n(row, words.shape.elements(), kNoSequence);
  for (int64_t n = 0; n < tokens; ++n, row += choice_words(active)) {
    const int64_t sequence =
        sequences.length > 0 ? (sequences.first + n) / sequences.length : int64_t{0};
    row[0] = static_cast<int32_t>(sequence);
    for (int64_t k = 0; k < active; ++k) {
      row[1 + k] = host<int32_t>(index)[n * active + k];
      row[1 + active + k] = std::bit_cast<int32_t>(host<float>(weight)[n * active + k]);
    }
  }
}

void unpack_choices(Exec&, ConstView words, View index, View weight, View place) {
  const int64_t active = index.width(), row_words = choice_words(active);
  const int32_t* from = host<int32_t>(words);
  const std::vector<int32_t> order = in_order(from, words.rows(), row_words);
  WEFT_CHECK(std::ssize(order) == index.rows(), "unpack_choices: {} tokens, expected {}",
             order.size(), index.rows());
  std::copy(order.begin(), order.end(), host<int32_t>(place));
  for (int64_t n = 0; n < index.rows(); ++n) {
    const int32_t* row = from + order[static_cast<size_t>(n)] * row_words;
    std::copy_n(row + 1, active, host<int32_t>(index) + n * active);
    for (int64_t k = 0; k < active; ++k) {
      host<float>(weight)[n * active + k] = std::bit_cast<float>(row[1 + active + k]);
    }
  }
}

void keep_choices(Exec&, ConstView row, ConstView place, int64_t first, ConstView index,
                  View kept) {
  const int64_t active = kept.width();
  for (int64_t n = 0; n < row.rows(); ++n) {
    const int64_t here = host<int32_t>(place)[n] - first;
    if (here < 0 || here >= kept.rows()) continue;
    for (int64_t k = 0; k < active; ++k) {
      const bool stays = host<int32_t>(row)[n * active + k] >= 0;
      host<int32_t>(kept)[here * active + k] = stays ? host<int32_t>(index)[here * active + k] : -1;
    }
  }
}

}  // namespace weft::kernels::cpu
