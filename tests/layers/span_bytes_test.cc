// What sequence parallelism sends: one all-gather of states forward and one backward for each
// layer, as many bytes as LASP-2 says, whatever the length.
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
  int64_t gathers = 0, bytes = 0;
};

// By one rank of `ranks`, for forward and backward of a layer over kRows documents of `length`
// tokens.
Sent sent_by(const std::string& name, int ranks, int32_t length) {
  Sent sent;
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
    const Sequence sequence = make_sequence(exec, documents, kRows, sequence_ranks);
    const Tensor x = rig.normal("x", {sequence.tokens(), kHidden});
    SavedStack saved;
    mixer->forward(exec, x, {sequence}, saved);
    mixer->backward(exec, x, {sequence}, saved);
    const CommCost cost = tally.of("sequence", "all_gather");
    EXPECT_EQ(cost.bytes, tally.of_axis("sequence").bytes) << name << " sends something else too";
    const std::lock_guard lock(mutex);
    sent = {cost.calls, cost.bytes};
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
    const Sent sent = sent_by(GetParam().mixer, ranks, 24);
    EXPECT_EQ(sent.gathers, 2);
    // 2 (W - 1) B H dk dv s, the transitions once, and a flag for each row: whether it lets states
    // through.
    const int64_t states = 2 * kHeads * kKey * kValue, flags = 1;
    EXPECT_EQ(sent.bytes,
              (ranks - 1) * kRows * (states + kHeads * GetParam().transition + flags) * 4);
    const Sent longer = sent_by(GetParam().mixer, ranks, 24 * 5);
    EXPECT_EQ(longer.bytes, sent.bytes);
    EXPECT_EQ(longer.gathers, sent.gathers);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpanBytes,
                         testing::Values(Case{"bla", 1}, Case{"retnet", 1}, Case{"lightning", 1},
                                         Case{"gla", kKey}, Case{"hgrn2", kKey},
                                         Case{"gfw", kKey + kValue}),
                         [](const auto& info) { return info.param.mixer; });

}  // namespace
}  // namespace weft::test
