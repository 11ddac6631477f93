#include "layers/recurrence/rows.h"

#include <algorithm>

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

// Rows [first, first + count) of a sequence.
View rows_in(const Tensor& t, int64_t sequence, int64_t first, int64_t count) {
  return t.view().row_range(sequence * t.shape()[1] + first, count);
}

void copy_latent(Exec& exec, ConstView from, View to) {
  if (from.rows() > 0) kernels::copy(exec, from, to);
}

// Rows that are left of a state and of a span when the span's are appended, for each sequence.
struct Appended {
  std::vector<int32_t> before, added;       // rows of the state and of the span
  std::vector<int64_t> old_rows, new_rows;  // the last ones of each that are left
  int64_t room = 0;

  template <class Reach>
  Appended(Exec& exec, const State& span, const State& entering, Reach reach)
      : before(counts_of(exec, entering)), added(counts_of(exec, span)) {
    for (size_t n = 0; n < added.size(); ++n) {
      const int64_t kept = reach(before[n] + added[n]);
      new_rows.push_back(std::min<int64_t>(added[n], kept));
      old_rows.push_back(kept - new_rows.back());
      room = std::max(room, kept);
    }
  }
  int64_t sequences() const { return static_cast<int64_t>(old_rows.size()); }
  Tensor counts(Exec& exec) const {
    std::vector<int64_t> sums;
    for (size_t n = 0; n < old_rows.size(); ++n) sums.push_back(old_rows[n] + new_rows[n]);
    return row_counts(exec, sums);
  }
};

}  // namespace

State RowAlgebra::start(Exec& exec, int64_t sequences) const {
  return {row_counts(exec, std::vector<int64_t>(static_cast<size_t>(sequences), 0))};
}

Summary RowAlgebra::combine(Exec& exec, const Summary& first, const Summary& second) const {
  return {{}, apply(exec, second, first.update)};
}

State RowAlgebra::apply(Exec& exec, const Summary& span, const State& entering) const {
  const Appended rows(exec, span.update, entering, [&](int64_t n) { return reach(n); });
  State leaving;
  for (size_t i = 0; i + 1 < span.update.size(); ++i) {
    const Tensor& added = span.update[i];
    const Tensor to =
        exec.zeros({rows.sequences(), rows.room, added.shape().back()}, added.dtype());
    for (int64_t n = 0; n < rows.sequences(); ++n) {
      const auto at = static_cast<size_t>(n);
      const int64_t before = rows.old_rows[at], behind = rows.new_rows[at];
      if (before > 0) {
        copy_latent(exec, rows_in(entering[i], n, rows.before[at] - before, before),
                    rows_in(to, n, 0, before));
      }
      copy_latent(exec, rows_in(added, n, rows.added[at] - behind, behind),
                  rows_in(to, n, before, behind));
    }
    leaving.push_back(to);
  }
  leaving.push_back(rows.counts(exec));
  return leaving;
}

State RowAlgebra::apply_adjoint(Exec& exec, const Summary& span, const State& entering,
                                const State& d_leaving) const {
  const Appended rows(exec, span.update, entering, [&](int64_t n) { return reach(n); });
  int64_t room = 0;
  for (const int32_t count : rows.before) room = std::max<int64_t>(room, count);
  State d_entering;
  for (size_t i = 0; i + 1 < d_leaving.size(); ++i) {
    const Tensor& from = d_leaving[i];
    const Tensor to = exec.zeros({rows.sequences(), room, from.shape().back()}, from.dtype());
    for (int64_t n = 0; n < rows.sequences(); ++n) {
      const auto at = static_cast<size_t>(n);
      const int64_t kept = rows.old_rows[at];
      copy_latent(exec, rows_in(from, n, 0, kept), rows_in(to, n, rows.before[at] - kept, kept));
    }
    d_entering.push_back(to);
  }
  d_entering.push_back(entering.back());
  return d_entering;
}

State rows_of(Exec& exec, const std::vector<ConstView>& kinds,
              const std::vector<RowRange>& ranges) {
  const auto sequences = static_cast<int64_t>(ranges.size());
  std::vector<int64_t> counts;
  for (const RowRange& range : ranges) counts.push_back(range.end - range.begin);
  const int64_t room = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  State rows;
  for (const ConstView& kind : kinds) {
    const Tensor to = exec.zeros({sequences, room, kind.width()}, kind.dtype);
    for (int64_t n = 0; n < sequences; ++n) {
      const auto at = static_cast<size_t>(n);
      copy_latent(exec, kind.row_range(ranges[at].begin, counts[at]),
                  rows_in(to, n, 0, counts[at]));
    }
    rows.push_back(to);
  }
  rows.push_back(row_counts(exec, counts));
  return rows;
}

SeenRows seen_rows(const Sequence& sequence, int64_t window) {
  const auto rows = static_cast<int64_t>(sequence.chains.size());
  const int64_t length = sequence.whole.back() / rows;
  // Rows of rank `from` that rank `to` sees in row `row` of the batch.
  const auto seen = [&](size_t from, size_t to, int64_t row) -> int64_t {
    const Sequence::Span theirs = sequence.spans[from], own = sequence.spans[to];
    if (from >= to || own.begin == own.end) return 0;
    const auto first = static_cast<int32_t>(row * length + own.begin);
    // The document that holds the first token.
    const int32_t start =
        *(std::upper_bound(sequence.whole.begin(), sequence.whole.end(), first) - 1);
    int64_t begin = std::max<int64_t>(theirs.begin, start - row * length);
    if (window > 0) begin = std::max(begin, own.begin - (window - 1));
    return std::max<int64_t>(0, theirs.end - begin);
  };
  const auto me = static_cast<size_t>(sequence.ranks->rank());
  SeenRows out;
  for (size_t r = 0; r < sequence.spans.size(); ++r) {
    out.of_others.emplace_back();
    out.of_mine.emplace_back();
    for (int64_t row = 0; row < rows; ++row) {
      out.of_others.back().push_back(seen(r, me, row));
      out.of_mine.back().push_back(seen(me, r, row));
    }
  }
  return out;
}

Summary chain_rows(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence,
                   const SeenRows& seen) {
  std::vector<RowRange> ranges;
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    int64_t most = 0;
    for (const auto& rank : seen.of_mine) most = std::max(most, rank[c]);
    const int64_t end = sequence.documents[static_cast<size_t>(sequence.chains[c].last) + 1];
    ranges.push_back({end - most, end});
  }
  return {{}, rows_of(exec, kinds, ranges)};
}

}  // namespace weft
