// The last inputs of a span (short convolutions, token shifts) go only to the next sequence rank,
// in one message for fused convolutions; if a span is shorter than their reach, they are gathered
// like states.
#include <gtest/gtest.h>

#include <mutex>

#include "parallel/comm/traced_comm.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

struct Sent {
  CommCost halo, gathers;
};

// Messages of each of `ranks`, forward and backward, over `rows` documents of `length` tokens.
std::vector<Sent> sent_by(const std::string& law, int ranks, int64_t rows, int32_t length) {
  std::vector<Sent> sent(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
    CommTally tally;
    TracedComm sequence_ranks(world.split(0, world.rank(), "sequence"), "sequence", tally);
    Rig rig(1);
    Coordinates here;
    here[Axis::kSequence] = {world.rank(), world.size()};
    const Made made(rig, exec, law, 4, here);
    std::vector<int32_t> documents;
    for (int32_t r = 0; r <= rows; ++r) documents.push_back(r * length);
    const Sequence sequence = make_sequence(documents, rows, sequence_ranks);
    const Tensor x = rig.normal("x", {sequence.tokens(), kHidden});
    SavedStack saved;
    StepContext step;
    made.mixer->forward(exec, x, {sequence, nullptr, &step}, saved);
    made.mixer->backward(exec, x, {sequence, nullptr, &step}, saved);
    const std::lock_guard lock(mutex);
    sent[static_cast<size_t>(world.rank())] = {tally.of("sequence", "halo"),
                                               tally.of("sequence", "all_gather")};
  });
  return sent;
}

struct Case {
  const char* law;
  int64_t numbers;   // numbers of the halo per row: taps before times channels
  int64_t messages;  // forward and backward
};

class Halo : public testing::TestWithParam<Case> {};

TEST_P(Halo, GoesToTheNextRankAlone) {
  constexpr int64_t kRows = 2;
  const auto [law, count, messages] = GetParam();
  for (const int ranks : {2, 3, 4}) {
    for (const int32_t length : {13, 52}) {
      const std::vector<Sent> sent = sent_by(law, ranks, kRows, length);
      for (int r = 0; r < ranks; ++r) {
        const Sent& mine = sent[static_cast<size_t>(r)];
        const int64_t neighbours = (r > 0 ? 1 : 0) + (r + 1 < ranks ? 1 : 0);
        EXPECT_EQ(mine.halo.bytes, neighbours * kRows * count * 4) << r << " of " << ranks;
        EXPECT_EQ(mine.halo.calls, messages);
        EXPECT_EQ(mine.gathers.calls, 2) << "states, forward and backward";
      }
    }
  }
}

// In the order of tests/layers/mixer_cases.h: 4 heads of dk 8 and dv 12, 2 kv heads; 8 value heads.
// Keys and values are one message, queries another, which overlaps the exchange of states; backward
// sends all three in one.
INSTANTIATE_TEST_SUITE_P(All, Halo,
                         testing::Values(Case{"gated_deltanet", 3 * (32 + 32 + 96), 3},
                                         Case{"gla,short_conv = true", 3 * (32 + 16 + 24), 3},
                                         Case{"kda", 3 * (32 + 32 + 48), 3},
                                         Case{"mamba2", 3 * (36 + 2 * 12), 2},
                                         Case{"rwkv7", 1 * kHidden, 2}),
                         [](const auto& info) {
                           const std::string law = info.param.law;
                           return law.substr(0, law.find(','));
                         });

struct Tiny {
  std::vector<int32_t> documents;
  int64_t rows;
};

// Spans of no token, one, two and three; documents that end where spans do, pass through several of
// them, and begin in the middle of one.
const Tiny kTiny[] = {{{0, 1}, 1},           {{0, 3}, 1},           {{0, 2, 5}, 1},
                      {{0, 7}, 1},           {{0, 1, 2, 8}, 1},     {{0, 12}, 1},
                      {{0, 4, 5, 6, 13}, 1}, {{0, 5, 6, 12, 18}, 3}};

class TinySpans : public testing::TestWithParam<const char*> {};

TEST_P(TinySpans, GiveWhatOneRankGives) {
  Rig rig;
  for (const Tiny& tiny : kTiny) {
    const int64_t tokens = tiny.documents.back();
    const Tensor x = rig.normal("x", {tokens, kHidden}), dy = rig.normal("dy", {tokens, kHidden});
    const OverRanks one(rig, GetParam(), x, dy, tiny.documents, tiny.rows, {});
    for (const int ranks : {2, 3, 4}) {
      const OverRanks many(rig, GetParam(), x, dy, tiny.documents, tiny.rows,
                           {.sequence = ranks, .travel = {SpanExchange::kGather, ranks != 3}});
      const std::string what = fmt::format("{} tokens on {} ranks", tokens, ranks);
      EXPECT_TRUE(Near(many.y, one.y, kTolerance)) << what;
      EXPECT_TRUE(Near(many.dx, one.dx, kTolerance)) << what;
      for (const auto& [name, grad] : one.weights) {
        EXPECT_TRUE(near_enough(many.weights.at(name), grad, one.largest())) << name << what;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinySpans,
                         testing::Values("gated_deltanet", "gla,short_conv = true", "kda", "mamba",
                                         "mamba2", "rwkv6", "rwkv7", "fox,pro = true", "mom"),
                         [](const auto& info) {
                           const std::string law = info.param;
                           return law.substr(0, law.find(','));
                         });

TEST(HaloOfTinySpans, IsGathered) {
  for (const Sent& sent : sent_by("mamba2", 3, 1, 8)) {  // spans of 2, 3 and 3 tokens
    EXPECT_EQ(sent.halo.calls, 0);
    EXPECT_EQ(sent.gathers.calls, 4);
  }
}

}  // namespace
}  // namespace weft::test
