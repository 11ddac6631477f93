#include "parallel/sequence/span_rows.h"

#include <algorithm>
#include <numeric>

#include "core/memory/host_table.h"
#include "kernels/states/packed_rows.h"

namespace weft {
namespace {

using Counts = SeenRows::Counts;

constexpr int64_t kWord = 4;  // bytes

// Rows of all kinds side by side, in whole words.
struct RowFormat {
  std::vector<int64_t> first;  // byte of each kind in a packed row
  int64_t words = 0;

  explicit RowFormat(const State& like) {
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < like.size(); ++i) {
      first.push_back(sum);
      sum += like[i].shape().back() * size_of(like[i].dtype());
    }
    words = (sum + kWord - 1) / kWord;
  }

  // each(rows of all chains, first byte) for every kind of row.
  template <class Each>
  void each_kind(const State& state, Each each) const {
    for (size_t i = 0; i < first.size(); ++i) {
      const Shape& s = state[i].shape();
      each(state[i].reshaped({s[0] * s[1], s[2]}), first[i]);
    }
  }
};

// Rows of tensors [chains, room, width], chain by chain.
class RowIndex {
 public:
  void add(int64_t chain, int64_t room, int64_t first, int64_t count) {
    for (int64_t row = 0; row < count; ++row) {
      rows_.push_back(static_cast<int32_t>(chain * room + first + row));
    }
  }
  // The last counts[c] rows of each chain of a state that holds `held` rows.
  void add_last(const State& state, const std::vector<int32_t>& held,
                const std::vector<int64_t>& counts) {
    for (size_t c = 0; c < counts.size(); ++c) {
      WEFT_CHECK(counts[c] <= held[c], "the last {} of {} rows of a span", counts[c], held[c]);
      add(static_cast<int64_t>(c), room_of(state), held[c] - counts[c], counts[c]);
    }
  }
  HostTable<int32_t> table() const { return HostTable(rows_); }

  static int64_t room_of(const State& state) { return state.size() < 2 ? 0 : state[0].shape()[1]; }

 private:
  std::vector<int32_t> rows_;
};

void pack(Exec& exec, const RowFormat& format, const State& state, const RowIndex& index,
          const Tensor& packed) {
  const HostTable<int32_t> rows = index.table();
  format.each_kind(state, [&](const Tensor& kind, int64_t first) {
    kernels::pack_rows(exec, kind, rows.view(exec), first, packed);
  });
}

std::vector<int64_t> sums(const Counts& counts) {
  std::vector<int64_t> rows;
  for (const auto& rank : counts) {
    rows.push_back(std::accumulate(rank.begin(), rank.end(), int64_t{0}));
  }
  return rows;
}
int64_t sum(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}
int64_t largest(const std::vector<int64_t>& counts) {
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

// Zeros for `counts` rows of each chain, of the kinds of `like`.
State room_for(Exec& exec, const State& like, const std::vector<int64_t>& counts) {
  State state;
  const auto chains = static_cast<int64_t>(counts.size());
  for (size_t i = 0; i + 1 < like.size(); ++i) {
    state.push_back(exec.zeros({chains, largest(counts), like[i].shape().back()}, like[i].dtype()));
  }
  state.push_back(row_counts(exec, counts));
  return state;
}

std::unique_ptr<Pending> send(Exec& exec, Communicator& ranks, const Tensor& sent,
                              const Counts& out, const Tensor& received, const Counts& in,
                              const SpanTravel& travel) {
  if (travel.overlap) return ranks.start_all_to_all_v(exec, sent, sums(out), received, sums(in));
  ranks.all_to_all_v(exec, sent, sums(out), received, sums(in));
  return nullptr;
}

Tensor packed_rows(Exec& exec, const RowFormat& format, const Counts& counts) {
  return exec.scratch({sum(sums(counts)), format.words}, DType::kI32);
}

}  // namespace

Tensor row_counts(Exec& exec, const std::vector<int64_t>& counts) {
  const HostTable<int32_t> table(std::vector<int32_t>(counts.begin(), counts.end()));
  const auto count = static_cast<int64_t>(table.size());
  const Tensor t = exec.host({count}, DType::kI32);
  exec.copy({table.host().data(), Shape{count}, count, DType::kI32, {}}, t);
  return t;
}

std::vector<int32_t> counts_of(Exec& exec, const State& rows) {
  return download<int32_t>(exec, rows.back());
}

RowExchange::RowExchange(Exec& exec, Communicator& ranks, const Summary& mine, const SeenRows& seen,
                         const SpanTravel& travel)
    : ranks_(ranks), like_(mine.update), counts_(seen.of_others) {
  const RowFormat format(like_);
  sent_ = packed_rows(exec, format, seen.of_mine);
  received_ = packed_rows(exec, format, seen.of_others);
  const std::vector<int32_t> held = counts_of(exec, like_);
  RowIndex index;
  for (const auto& rank : seen.of_mine) index.add_last(like_, held, rank);
  pack(exec, format, like_, index, sent_);
  pending_ = send(exec, ranks, sent_, seen.of_mine, received_, seen.of_others, travel);
}

State RowExchange::state(Exec& exec, const SpanAlgebra& algebra) {
  if (pending_) pending_->wait();
  pending_.reset();
  const RowFormat format(like_);
  State state = algebra.start(exec, like_.back().elements());
  int64_t at = 0;
  for (int r = 0; r < ranks_.rank(); ++r) {
    const std::vector<int64_t>& rows = counts_[static_cast<size_t>(r)];
    if (largest(rows) == 0) continue;
    const Summary span{{}, room_for(exec, like_, rows)};
    RowIndex index;
    index.add_last(span.update, {rows.begin(), rows.end()}, rows);
    const HostTable<int32_t> table = index.table();
    const Tensor packed = received_.row_range(at, sum(rows));
    format.each_kind(span.update, [&](const Tensor& kind, int64_t first) {
      kernels::unpack_rows(exec, packed, first, table.view(exec), kind);
    });
    at += sum(rows);
    state = algebra.apply(exec, span, state);
  }
  return state;
}

RowGradientExchange::RowGradientExchange(Exec& exec, Communicator& ranks,
                                         const SpanAlgebra& algebra, State d_entering,
                                         const SeenRows& seen, const SpanTravel& travel)
    : ranks_(ranks), like_(d_entering), counts_(seen.of_mine) {
  const RowFormat format(like_);
  sent_ = packed_rows(exec, format, seen.of_others);
  received_ = packed_rows(exec, format, seen.of_mine);
  // Rows of rank r and after come off the end, last rank first.
  std::vector<int64_t> before(static_cast<size_t>(like_.back().elements()), 0);
  for (const auto& rank : seen.of_others) {
    for (size_t c = 0; c < rank.size(); ++c) before[c] += rank[c];
  }
  int64_t end = sent_.shape()[0];
  for (int r = ranks.rank() - 1; r >= 0; --r) {
    const std::vector<int64_t>& rows = seen.of_others[static_cast<size_t>(r)];
    if (largest(rows) == 0) continue;
    for (size_t c = 0; c < rows.size(); ++c) before[c] -= rows[c];
    end -= sum(rows);
    RowIndex index;
    index.add_last(d_entering, counts_of(exec, d_entering), rows);
    pack(exec, format, d_entering, index, sent_.row_range(end, sum(rows)));
    const Summary span{{}, {row_counts(exec, rows)}};  // all that the adjoint looks at
    d_entering = algebra.apply_adjoint(exec, span, {row_counts(exec, before)}, d_entering);
  }
  pending_ = send(exec, ranks, sent_, seen.of_others, received_, seen.of_mine, travel);
}

State RowGradientExchange::gradient(Exec& exec) {
  if (pending_) pending_->wait();
  pending_.reset();
  const RowFormat format(like_);
  std::vector<int64_t> most(static_cast<size_t>(like_.back().elements()), 0);
  for (const auto& rank : counts_) {
    for (size_t c = 0; c < rank.size(); ++c) most[c] = std::max(most[c], rank[c]);
  }
  State sums = room_for(exec, like_, most);
  int64_t at = 0;
  for (const auto& rank : counts_) {
    RowIndex index;
    index.add_last(sums, {most.begin(), most.end()}, rank);
    const HostTable<int32_t> table = index.table();
    const Tensor packed = received_.row_range(at, sum(rank));
    format.each_kind(sums, [&](const Tensor& kind, int64_t first) {
      kernels::add_packed_rows(exec, packed, first, table.view(exec), kind);
    });
    at += sum(rank);
  }
  return sums;
}

}  // namespace weft
