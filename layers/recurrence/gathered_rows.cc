#include "layers/recurrence/gathered_rows.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace weft {
namespace {

// Spans differ by a token at most; collectives want equal parts, so all are padded to the longest.
int64_t longest_span(const Sequence& sequence) {
  int64_t longest = 0;
  for (const auto& span : sequence.spans) longest = std::max(longest, span.end - span.begin);
  return longest;
}

// Calls visit(row in the gathered blocks [ranks, batch rows, longest], row in the whole batch,
// count).
template <class Visit>
void for_runs(const Sequence& sequence, Visit visit) {
  const auto rows = static_cast<int64_t>(sequence.chains.size());
  const int64_t length = sequence.whole.back() / rows, longest = longest_span(sequence);
  for (size_t r = 0; r < sequence.spans.size(); ++r) {
    const auto [begin, end] = sequence.spans[r];
    for (int64_t row = 0; row < rows && begin < end; ++row) {
      visit((static_cast<int64_t>(r) * rows + row) * longest, row * length + begin, end - begin);
    }
  }
}

}  // namespace

Tensor gather_rows(Exec& exec, const Sequence& sequence, ConstView mine) {
  const auto rows = static_cast<int64_t>(sequence.chains.size());
  const int64_t longest = longest_span(sequence), width = mine.width();
  const int64_t count = mine.rows() / rows;
  const Tensor padded = exec.zeros({rows * longest, width}, mine.dtype);
  for (int64_t row = 0; row < rows && count > 0; ++row) {
    kernels::copy(exec, mine.row_range(row * count, count),
                  padded.view().row_range(row * longest, count));
  }
  const Tensor all = exec.scratch({sequence.ranks->size() * rows * longest, width}, mine.dtype);
  sequence.ranks->all_gather(exec, padded,
                             all.reshaped({sequence.ranks->size(), rows * longest, width}));
  const Tensor whole = exec.empty({sequence.whole.back(), width}, mine.dtype);
  for_runs(sequence, [&](int64_t block, int64_t at, int64_t n) {
    kernels::copy(exec, all.view().row_range(block, n), whole.view().row_range(at, n));
  });
  return whole;
}

Tensor scatter_rows(Exec& exec, const Sequence& sequence, ConstView all) {
  const auto rows = static_cast<int64_t>(sequence.chains.size());
  const int64_t longest = longest_span(sequence), width = all.width(),
                size = sequence.ranks->size();
  const Tensor blocks = exec.zeros({size * rows * longest, width});
  for_runs(sequence, [&](int64_t block, int64_t at, int64_t n) {
    kernels::copy(exec, all.row_range(at, n), blocks.view().row_range(block, n));
  });
  const Tensor mine = exec.scratch({rows * longest, width});
  sequence.ranks->reduce_scatter(exec, blocks.reshaped({size, rows * longest, width}), mine);
  const Tensor out = exec.empty({sequence.tokens(), width});
  const int64_t count = sequence.tokens() / rows;
  for (int64_t row = 0; row < rows && count > 0; ++row) {
    kernels::copy(exec, mine.view().row_range(row * longest, count),
                  out.view().row_range(row * count, count));
  }
  return out;
}

}  // namespace weft
