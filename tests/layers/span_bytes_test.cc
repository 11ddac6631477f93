// What sequence parallelism sends, whatever the length: one all-gather of states forward and one
// backward for each layer, as many bytes as LASP-2 says; or the states alone from rank to rank.
#include <gtest/gtest.h>

#include <mutex>

#include "layers/mixers/registry.h"
#include "parallel/thread_comm.h"
#include "parallel/traced_comm.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHidden = 32, kHeads = 2, kKey = 8, kValue = 12, kRows = 3;

struct Sent {
  int64_t gathers = 0, gathered = 0, bytes = 0;  // bytes: by gathers and transfers
};

// By each of `ranks`, for forward and backward of a layer over kRows documents of `length` tokens.
std::vector<Sent> sent_by(const std::string& name, int ranks, int32_t length,
                          const SpanTravel& travel) {
  std::vector<Sent> sent(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
    CommTally tally;
    TracedComm sequence_ranks(world.split(0, world.rank(), "sequence"), "sequence", tally);
    Rig rig(1);
    ParameterStore store;
    const OptionTable options =
        OptionTable::parse(fmt::format("heads = {}\ndk = {}\ndv = {}\n", kHeads, kKey, kValue));
    const Build build{.store = store, .scope = "", .hidden = kHidden};
    const auto mixer = make_mixer(name, MixerBuild{build, options});
    store.allocate(rig.ledger, DType::kF32, ParameterStore::Gradients::kAllocate);
    store.initialize(exec, 1);
    store.publish(exec);
    std::vector<int32_t> documents;
    for (int32_t r = 0; r <= kRows; ++r) documents.push_back(r * length);
    const Sequence sequence = make_sequence(exec, documents, kRows, sequence_ranks, travel);
    const Tensor x = rig.normal("x", {sequence.tokens(), kHidden});
    SavedStack saved;
    mixer->forward(exec, x, {sequence}, saved);
    mixer->backward(exec, x, {sequence}, saved);
    const CommCost gathers = tally.of("sequence", "all_gather");
    const std::lock_guard lock(mutex);
    sent[static_cast<size_t>(world.rank())] = {gathers.calls, gathers.bytes,
                                               tally.of_axis("sequence").bytes};
  });
  return sent;
}

struct Case {
  const char* mixer;
  int64_t transition;  // numbers per head that tell what becomes of an entering state
};

class SpanBytes : public testing::TestWithParam<Case> {};

TEST_P(SpanBytes, AreThoseOfLasp2AndDoNotDependOnTheLength) {
  for (const int ranks : {2, 4}) {
    for (const bool overlap : {false, true}) {
      for (const int32_t length : {24, 24 * 5}) {
        for (const Sent& sent :
             sent_by(GetParam().mixer, ranks, length, {SpanExchange::kGather, overlap})) {
          EXPECT_EQ(sent.gathers, 2);
          EXPECT_EQ(sent.gathered, sent.bytes) << "sends something else too";
          // 2 (W - 1) B H dk dv s, the transitions once, and a flag for each row: whether it lets
          // states through.
          const int64_t states = 2 * kHeads * kKey * kValue, flags = 1;
          EXPECT_EQ(sent.bytes,
                    (ranks - 1) * kRows * (states + kHeads * GetParam().transition + flags) * 4);
        }
      }
    }
  }
}

// B H dk dv s to the next rank forward, and as much to the one before backward: 1/(W - 1) of what a
// gather of states sends, and neither transitions nor flags.
TEST_P(SpanBytes, OfAScanAreAStateToEachNeighbour) {
  for (const int ranks : {2, 3, 4}) {
    for (const int32_t length : {24, 24 * 5}) {
      const std::vector<Sent> sent =
          sent_by(GetParam().mixer, ranks, length, {SpanExchange::kScan, true});
      const int64_t state = kRows * kHeads * kKey * kValue * 4;
      for (int r = 0; r < ranks; ++r) {
        const Sent& mine = sent[static_cast<size_t>(r)];
        EXPECT_EQ(mine.gathers, 0);
        const int neighbours = (r > 0 ? 1 : 0) + (r + 1 < ranks ? 1 : 0);
        EXPECT_EQ(mine.bytes, neighbours * state) << "rank " << r << " of " << ranks;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpanBytes,
                         testing::Values(Case{"bla", 1}, Case{"retnet", 1}, Case{"lightning", 1},
                                         Case{"gla", kKey}, Case{"hgrn2", kKey},
                                         Case{"gfw", kKey + kValue}),
                         [](const auto& info) { return info.param.mixer; });

}  // namespace
}  // namespace weft::test
