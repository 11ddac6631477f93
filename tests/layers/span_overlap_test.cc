// Work of every mixer with span summaries that overlaps the exchange of states: queries and output
// gate in forward, weight gradients in backward. Detected by overwriting the layer's input: values
// computed from it before do not change.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/host_access.h"
#include "tests/layers/mixer_cases.h"
#include "tests/support/watched_comm.h"

namespace weft::test {
namespace {

constexpr int32_t kLength = 22;
constexpr const char* kStates = "all_gather";
constexpr SpanTravel kTravels{SpanExchange::kGather, /*overlap=*/true};

// True if the mixer has a gathered prefix state.
bool is_prefix(const std::string& law) {
  Rig rig(1);
  const Made made(rig, rig.exec, law);
  std::vector<SpanRecord> records;
  Sequence sequence = make_sequence({0, kLength});
  sequence.records = &records;
  SavedStack saved;
  StepContext step;
  made.mixer->forward(rig.exec, rig.normal("x", {kLength, kHidden}), {sequence, nullptr, &step},
                      saved);
  return std::any_of(records.begin(), records.end(), [](const SpanRecord& record) {
    return record.algebra->exchange() == Exchange::kPrefix && record.algebra->looks_back() == 0;
  });
}

// A mixer on one of the observed ranks of `world`.
struct OnRank {
  OnRank(ThreadComm& world, Exec& exec, const std::string& law, const SpanTravel& travel)
      : ranks(world),
        made(rig, exec, law, 4, place(world)),
        sequence(make_sequence({0, kLength}, 1, ranks, travel)),
        x(rig.normal("x", {sequence.tokens(), kHidden})) {}
  static Coordinates place(const Communicator& world) {
    Coordinates here;
    here[Axis::kSequence] = {world.rank(), world.size()};
    return here;
  }
  Tensor forward(Exec& exec) {
    return made.mixer->forward(exec, x, {sequence, nullptr, &step}, saved);
  }
  void spoil() const { std::fill_n(host<float>(x), x.elements(), 0.0f); }

  Rig rig{1};
  Watched ranks;
  Made made;
  Sequence sequence;
  Tensor x;
  SavedStack saved;
  StepContext step;
};

class SpanOverlap : public testing::TestWithParam<std::string> {};

// Whether the output changes if the input is overwritten at the start, or at the wait, of gather
// `which`.
struct Spoilt {
  bool at_start, at_wait;
};
Spoilt spoilt(ThreadComm& world, Exec& exec, const std::string& law, const Tensor& y, int which) {
  const auto spoil_at = [&](const OnRank& on) {
    return [&on, which, seen = std::make_shared<int>(0)](const std::string& operation) {
      if (operation == kStates && (*seen)++ == which) on.spoil();
    };
  };
  OnRank started(world, exec, law, kTravels), waited(world, exec, law, kTravels);
  started.ranks.begun = spoil_at(started);
  waited.ranks.look = spoil_at(waited);
  return {!SameBits(started.forward(exec), y), !SameBits(waited.forward(exec), y)};
}

TEST_P(SpanOverlap, QueriesAndGatesAreComputedWhileStatesTravel) {
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    OnRank plain(world, exec, GetParam(), kTravels);
    int gathers = 0;
    plain.ranks.begun = [&](const std::string& operation) { gathers += operation == kStates; };
    const Tensor y = plain.forward(exec);
    EXPECT_GE(gathers, 1);
    // Convolutions of memories have their own gathers, before and after that of states.
    bool found = false;
    for (int which = 0; which < gathers; ++which) {
      const Spoilt now = spoilt(world, exec, GetParam(), y, which);
      found = found || (now.at_start && !now.at_wait);
      EXPECT_TRUE(gathers > 1 || now.at_start) << "nothing was left to compute";
      EXPECT_TRUE(gathers > 1 || !now.at_wait) << "something waited, needlessly";
    }
    EXPECT_TRUE(found);
  });
}

TEST_P(SpanOverlap, GradientsOfWeightsAreComputedWhileThoseOfStatesTravel) {
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    OnRank on(world, exec, GetParam(), kTravels);
    const auto output = [&]() -> const Tensor& {
      for (Parameter& p : on.made.store.all()) {
        const std::string& name = p.spec.name;
        if (name.ends_with("o_proj.weight") || name.ends_with("out_proj.weight")) return p.grad;
      }
      throw Error("no output projection");
    };
    const auto some = [](const Tensor& t) {
      return std::any_of(host<float>(t), host<float>(t) + t.elements(),
                         [](float g) { return g != 0.0f; });
    };
    on.forward(exec);
    std::vector<bool> at_start, at_wait;
    on.ranks.begun = [&](const std::string& operation) {
      if (operation == kStates) at_start.push_back(some(output()));
    };
    on.ranks.look = [&](const std::string& operation) {
      if (operation == kStates) at_wait.push_back(some(output()));
    };
    on.saved.hold();  // as in a block
    on.made.mixer->backward(exec, on.rig.normal("dy", on.x.shape()),
                            {on.sequence, nullptr, &on.step}, on.saved);
    on.saved.run_held(exec);
    ASSERT_FALSE(at_start.empty());
    EXPECT_FALSE(at_start.front());
    EXPECT_TRUE(at_wait.front());
  });
}

TEST_P(SpanOverlap, NothingIsUnderWayWhereItIsSwitchedOff) {
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    OnRank on(world, exec, GetParam(), {SpanExchange::kGather, /*overlap=*/false});
    bool computing = false;
    on.ranks.begun = [&](const std::string& operation) {
      EXPECT_EQ(operation, "halo");  // waited for at once
      computing = true;
    };
    on.ranks.look = [&](const std::string&) { computing = false; };
    on.forward(exec);
    EXPECT_FALSE(computing);
  });
}

// Attention gathers rows; rules that are not affine in the state use the ring.
bool has_no_summary(const std::string& law) {
  const std::string mixer = name_in(law);
  return mixer == "softmax" || mixer == "fox" || mixer == "mla" ||
         law.find("inner_norm = true") != std::string::npos;
}

// Every other line of mixers.def and its variants; without output gate, so that only queries
// overlap.
std::vector<std::string> laws() {
  std::vector<std::string> names = mixers_and_variants();
  for (const MixerInfo& mixer : mixer_list()) {
    if (takes(mixer.name, "output_gate")) names.push_back(mixer.name + ",output_gate = false");
  }
  std::erase_if(names, has_no_summary);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SpanOverlap, testing::ValuesIn(laws()), name_of_case);

TEST(SpanOverlapOf, AllThatHaveASummary) {
  for (const std::string& law : mixers_and_variants()) {
    EXPECT_EQ(is_prefix(law), !has_no_summary(law)) << law;
  }
}

}  // namespace
}  // namespace weft::test
