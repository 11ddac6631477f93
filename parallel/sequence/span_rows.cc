#include "parallel/sequence/span_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/host_access.h"

namespace weft {
namespace {

using Counts = SeenRows::Counts;

constexpr int64_t kWord = 4;  // bytes

// Rows of all kinds side by side, in whole words.
struct RowFormat {
  std::vector<int64_t> bytes;  // of a row, by kind
  int64_t words = 0;

  explicit RowFormat(const State& like) {
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < like.size(); ++i) {
      bytes.push_back(like[i].shape().back() * size_of(like[i].dtype()));
      sum += bytes.back();
    }
    words = (sum + kWord - 1) / kWord;
  }
};

char* row_of(const Tensor& t, int64_t chain, int64_t row, int64_t bytes) {
  return static_cast<char*>(host_bytes(t)) + (chain * t.shape()[1] + row) * bytes;
}

char* row_of(const Tensor& packed, int64_t row) {
  return static_cast<char*>(host_bytes(packed)) + row * packed.shape()[1] * kWord;
}

// The last `count` rows of a chain of a state, to packed rows from `at` on.
void pack(const RowFormat& format, const State& state, int64_t chain, int64_t count,
          const Tensor& packed, int64_t at) {
  const int64_t first = host<int32_t>(state.back())[chain] - count;
  WEFT_CHECK(first >= 0, "a span of {} rows is asked for its last {}", first + count, count);
  for (int64_t row = 0; row < count; ++row) {
    char* to = row_of(packed, at + row);
    for (size_t i = 0; i < format.bytes.size(); ++i) {
      const int64_t bytes = format.bytes[i];
      std::memcpy(to, row_of(state[i], chain, first + row, bytes), static_cast<size_t>(bytes));
      to += bytes;
    }
  }
}

// each(kind, place of a state's row, packed bytes of it)
template <class Each>
void each_packed(const RowFormat& format, const State& state, int64_t chain, int64_t first,
                 int64_t count, const Tensor& packed, int64_t at, Each each) {
  for (int64_t row = 0; row < count; ++row) {
    const char* from = row_of(packed, at + row);
    for (size_t i = 0; i < format.bytes.size(); ++i) {
      each(row_of(state[i], chain, first + row, format.bytes[i]), from, format.bytes[i]);
      from += format.bytes[i];
    }
  }
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
  const Tensor t = exec.empty({static_cast<int64_t>(counts.size())}, DType::kI32);
  for (size_t c = 0; c < counts.size(); ++c) host<int32_t>(t)[c] = static_cast<int32_t>(counts[c]);
  return t;
}

RowEntrance::RowEntrance(Exec& exec, Communicator& ranks, const Summary& mine, const SeenRows& seen,
                         const SpanTravel& travel)
    : ranks_(ranks), like_(mine.update), counts_(seen.of_others) {
  const RowFormat format(like_);
  sent_ = packed_rows(exec, format, seen.of_mine);
  received_ = packed_rows(exec, format, seen.of_others);
  int64_t at = 0;
  for (const auto& rank : seen.of_mine) {
    for (size_t c = 0; c < rank.size(); ++c) {
      pack(format, mine.update, static_cast<int64_t>(c), rank[c], sent_, at);
      at += rank[c];
    }
  }
  pending_ = send(exec, ranks, sent_, seen.of_mine, received_, seen.of_others, travel);
}

State RowEntrance::state(Exec& exec, const SpanAlgebra& algebra) {
  if (pending_) pending_->wait();
  pending_.reset();
  const RowFormat format(like_);
  State state = algebra.start(exec, like_.back().elements());
  int64_t at = 0;
  for (int r = 0; r < ranks_.rank(); ++r) {
    const std::vector<int64_t>& rows = counts_[static_cast<size_t>(r)];
    if (largest(rows) == 0) continue;
    const Summary span{{}, room_for(exec, like_, rows)};
    for (size_t c = 0; c < rows.size(); ++c) {
      each_packed(format, span.update, static_cast<int64_t>(c), 0, rows[c], received_, at,
                  [](char* to, const char* from, int64_t bytes) {
                    std::memcpy(to, from, static_cast<size_t>(bytes));
                  });
      at += rows[c];
    }
    state = algebra.apply(exec, span, state);
  }
  return state;
}

RowDeparture::RowDeparture(Exec& exec, Communicator& ranks, const SpanAlgebra& algebra,
                           State d_entering, const SeenRows& seen, const SpanTravel& travel)
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
    int64_t at = end -= sum(rows);
    for (size_t c = 0; c < rows.size(); ++c) {
      pack(format, d_entering, static_cast<int64_t>(c), rows[c], sent_, at);
      at += rows[c];
    }
    const Summary span{{}, {row_counts(exec, rows)}};  // all that the adjoint looks at
    d_entering = algebra.apply_adjoint(exec, span, {row_counts(exec, before)}, d_entering);
  }
  pending_ = send(exec, ranks, sent_, seen.of_others, received_, seen.of_mine, travel);
}

State RowDeparture::gradient(Exec& exec) {
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
    for (size_t c = 0; c < rank.size(); ++c) {
      each_packed(format, sums, static_cast<int64_t>(c), most[c] - rank[c], rank[c], received_, at,
                  [](char* to, const char* from, int64_t bytes) {
                    auto* sum = reinterpret_cast<float*>(to);
                    const auto* part = reinterpret_cast<const float*>(from);
                    for (int64_t e = 0; e < bytes / kWord; ++e) sum[e] += part[e];
                  });
      at += rank[c];
    }
  }
  return sums;
}

}  // namespace weft
