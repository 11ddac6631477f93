// Softmax attention between sequence ranks: rows go only to the ranks that attend to them.
#include <gtest/gtest.h>

#include <mutex>

#include "core/host_access.h"
#include "layers/recurrence/rows.h"
#include "parallel/comm/traced_comm.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

// Rows of several sequences as lists, of a wide kind in bf16 and a narrow one in f32. Numbers that
// bf16 holds.
using Lists = std::vector<std::vector<double>>;

State state_of(Exec& exec, const Lists& lists) {
  int64_t room = 2;  // more than needed
  std::vector<int64_t> counts;
  for (const auto& list : lists) {
    counts.push_back(static_cast<int64_t>(list.size()));
    room = std::max(room, counts.back());
  }
  const auto n = static_cast<int64_t>(lists.size());
  const Tensor wide = exec.zeros({n, room, 3}, DType::kBF16), narrow = exec.zeros({n, room, 1});
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t i = 0; i < counts[static_cast<size_t>(s)]; ++i) {
      const auto x = static_cast<float>(lists[static_cast<size_t>(s)][static_cast<size_t>(i)]);
      for (int64_t c = 0; c < 3; ++c) host<bf16>(wide)[(s * room + i) * 3 + c] = to_bf16(x);
      host<float>(narrow)[s * room + i] = x;
    }
  }
  return {wide, narrow, row_counts(exec, counts)};
}

Lists lists_of(const State& state) {
  EXPECT_EQ(state.size(), 3u);
  Lists lists;
  for (int64_t s = 0; s < state[2].elements(); ++s) {
    lists.emplace_back();
    for (int64_t i = 0; i < host<int32_t>(state[2])[s]; ++i) {
      const int64_t row = s * state[1].shape()[1] + i;
      lists.back().push_back(host<float>(state[1])[row]);
      const bf16* wide = host<bf16>(state[0]) + (s * state[0].shape()[1] + i) * 3;
      for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(to_float(wide[c]), lists.back().back());
    }
  }
  return lists;
}

const Lists kFirst = {{1, 2, 3}, {}, {4, 5, 6, 7, 8}, {9}, {}},
            kSecond = {{11, 12}, {13, 14, 15, 16}, {}, {17, 18, 19, 20, 21}, {}};

Lists appended(const Lists& a, const Lists& b, size_t window) {
  Lists out = a;
  for (size_t s = 0; s < a.size(); ++s) {
    out[s].insert(out[s].end(), b[s].begin(), b[s].end());
    if (window == 0) continue;
    const size_t kept = std::min(out[s].size(), window - 1);
    out[s].erase(out[s].begin(), out[s].end() - static_cast<std::ptrdiff_t>(kept));
  }
  return out;
}

TEST(RowAlgebra, AppendsRowsAndKeepsThoseThatAWindowReaches) {
  Rig rig;
  for (const int64_t window : {0, 1, 2, 5, 100}) {
    const RowAlgebra algebra(window);
    const Lists want = appended(kFirst, kSecond, static_cast<size_t>(window));
    const Summary first{{}, state_of(rig.exec, kFirst)}, second{{}, state_of(rig.exec, kSecond)};
    EXPECT_EQ(lists_of(algebra.apply(rig.exec, second, first.update)), want);
    EXPECT_EQ(lists_of(algebra.combine(rig.exec, first, second).update), want);
    const State none = algebra.start(rig.exec, 5);
    EXPECT_EQ(lists_of(algebra.apply(rig.exec, second, none)),
              appended(Lists(5), kSecond, static_cast<size_t>(window)));
  }
}

// The leaving rows begin with the entering ones, except for rows that the window drops, and the
// span's own gradient does not come back.
TEST(RowAlgebra, HandsBackTheSliceThatEntered) {
  Rig rig;
  for (const size_t window : {0, 1, 2, 5, 100}) {
    const RowAlgebra algebra(static_cast<int64_t>(window));
    Lists d_leaving = appended(kFirst, kSecond, window), want = kFirst;
    for (size_t s = 0; s < want.size(); ++s) {
      const size_t all = kFirst[s].size() + kSecond[s].size(), dropped = all - d_leaving[s].size();
      for (size_t i = 0; i < want[s].size() && i < dropped; ++i) want[s][i] = 0;
    }
    const Summary span{{}, state_of(rig.exec, kSecond)};
    EXPECT_EQ(lists_of(algebra.apply_adjoint(rig.exec, span, state_of(rig.exec, kFirst),
                                             state_of(rig.exec, d_leaving))),
              want);
  }
}

struct Case {
  const char* what;
  std::vector<int32_t> documents;
  int64_t rows;
};
// Spans shorter than the window, of one token, and of none; documents that begin and end inside
// and at the borders of ranks.
const Case kCases[] = {{"long", {0, 73}, 1},
                       {"packed", {0, 7, 8, 24, 36, 60, 73}, 1},
                       {"two rows", {0, 37, 50, 51, 74}, 2},
                       {"tiny spans", {0, 10}, 1},
                       {"tiny packed", {0, 4, 5, 11, 16, 22}, 2},
                       {"some empty", {0, 3}, 1}};

void expect_what_one_rank_gives(Rig& rig, const std::string& mixer, DType type, double tolerance) {
  for (const Case& c : kCases) {
    const int64_t tokens = c.documents.back();
    const Tensor x = rig.normal("x", {tokens, kHidden}), dy = rig.normal("dy", {tokens, kHidden});
    const OverRanks one(rig, mixer, x, dy, c.documents, c.rows, {.type = type});
    for (const int size : {2, 3, 4}) {
      const OverRanks many(rig, mixer, x, dy, c.documents, c.rows,
                           {.sequence = size, .travel = {.overlap = size == 3}, .type = type});
      EXPECT_TRUE(Near(many.y, one.y, tolerance)) << c.what << ", ranks: " << size;
      EXPECT_TRUE(Near(many.dx, one.dx, tolerance)) << c.what << ", ranks: " << size;
    }
  }
}

class SpanRows : public Gradients {};

TEST_F(SpanRows, OfAWindowGiveWhatOneRankGives) {
  for (const int window : {1, 2, 5, 30}) {
    SCOPED_TRACE(fmt::format("window {}", window));
    expect_what_one_rank_gives(rig, fmt::format("softmax,window = {}", window), DType::kF32,
                               kTolerance);
  }
  expect_what_one_rank_gives(rig, "liger,window = 5", DType::kF32, kTolerance);
}

// Keys and values of both types with gates in f32, and an odd number of channels. Scores, weights,
// outputs and gradients are rounded to bf16, each by at most 2^-9, in different orders: five such
// roundings of dx on both sides.
TEST_F(SpanRows, OfAnyTypeGiveWhatOneRankGives) {
  const double rounded = 2 * 5 * std::exp2(-9);
  expect_what_one_rank_gives(rig, "fox", DType::kF32, kTolerance);
  expect_what_one_rank_gives(rig, "fox", DType::kBF16, rounded);
  expect_what_one_rank_gives(rig, "fox,pro = true", DType::kBF16, rounded);
  expect_what_one_rank_gives(rig, "softmax,window = 5\nqk_norm = true", DType::kBF16, rounded);
}

// Bytes of one rank's forward and backward.
struct Sent {
  int64_t rows = 0, all = 0;  // in exchanges of rows, in total
};
std::vector<Sent> sent_by(const std::string& mixer, int ranks, int32_t length, int64_t batch,
                          DType type) {
  std::vector<Sent> sent(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
    CommTally tally;
    TracedComm comm(world.split(0, world.rank(), "sequence"), "sequence", tally);
    Rig mine(1);
    const Made made(mine, exec, mixer, 4, {}, nullptr, type);
    std::vector<int32_t> documents;
    for (int32_t r = 0; r <= batch; ++r) documents.push_back(r * length);
    const Sequence sequence = make_sequence(documents, batch, comm);
    const Tensor x = mine.normal("x", {sequence.tokens(), kHidden}, 1, type),
                 dy = mine.normal("dy", {sequence.tokens(), kHidden});
    SavedStack saved;
    made.mixer->forward(exec, x, {sequence}, saved);
    made.mixer->backward(exec, dy, {sequence}, saved);
    const CommCost rows = tally.of("sequence", "all_to_all_v");
    EXPECT_EQ(rows.calls, 2) << "one exchange forward, one back";
    const std::lock_guard lock(mutex);
    sent[static_cast<size_t>(world.rank())] = {rows.bytes, tally.of_axis("sequence").bytes};
  });
  return sent;
}

// Two kv heads of 8 and 12 channels.
constexpr int64_t kRowWidth = 2 * (8 + 12);

TEST(SpanRowBytes, OfAWindowDoNotDependOnTheLength) {
  constexpr int64_t kBatch = 3, kWindow = 9;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int ranks : {2, 4}) {
      for (const int32_t length : {36, 36 * 5}) {
        const auto sent = sent_by("softmax,window = 9", ranks, length, kBatch, type);
        for (int r = 0; r < ranks; ++r) {
          // window - 1 rows to the next rank, gradients of as many to the previous one, in f32.
          const int64_t rows = kBatch * (kWindow - 1) * kRowWidth;
          const int64_t want =
              rows * ((r + 1 < ranks ? size_of(type) : 0) + (r > 0 ? size_of(DType::kF32) : 0));
          EXPECT_EQ(sent[static_cast<size_t>(r)].rows, want) << "rank " << r << " of " << ranks;
          EXPECT_EQ(sent[static_cast<size_t>(r)].all, want) << "sends something else too";
        }
      }
    }
  }
  const auto narrow = sent_by("liger,window = 9", 2, 36, kBatch, DType::kF32),
             wide = sent_by("liger,window = 9", 2, 36 * 5, kBatch, DType::kF32);
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(narrow[r].all, wide[r].all) << "rank " << r;
}

// Without a window: every row to every rank behind, gradients back.
TEST(SpanRowBytes, AreThoseOfRowsThatSomebodySees) {
  constexpr int64_t kBatch = 2, kSpan = 9;
  for (const int ranks : {2, 4}) {
    const auto sent =
        sent_by("softmax", ranks, static_cast<int32_t>(kSpan) * ranks, kBatch, DType::kBF16);
    for (int r = 0; r < ranks; ++r) {
      const int64_t rows = kBatch * kSpan * kRowWidth;
      EXPECT_EQ(sent[static_cast<size_t>(r)].rows, rows * (2 * (ranks - 1 - r) + 4 * r));
    }
  }
}

}  // namespace
}  // namespace weft::test
