// Bytes sent by sequence parallelism, independent of the length: for each layer one all-gather of
// states forward and one backward, with the bytes of LASP-2 and the transitions; or the states
// alone from rank to rank. (Softmax rows: span_rows_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "tests/layers/mixer_cases.h"
#include "tests/support/forwarding_comm.h"

namespace weft::test {
namespace {

// A communicator that records the bytes of every call of this rank.
class Logged final : public ForwardingComm {
 public:
  using ForwardingComm::ForwardingComm;

  std::vector<int64_t> gathered, sent;  // bytes: of all-gathers, to other ranks; of transfers

  void all_gather(Exec& exec, ConstView mine, View all) override {
    gathered.push_back((size() - 1) * mine.shape.elements() * size_of(mine.dtype));
    inner_.all_gather(exec, mine, all);
  }
  void transfer(Exec& exec, std::span<const Transfer> together) override {
    if (bytes_in(together) > 0) sent.push_back(bytes_in(together));
    inner_.transfer(exec, together);
  }
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override {
    if (bytes_in(together) > 0) sent.push_back(bytes_in(together));
    return inner_.start(exec, together);
  }
  std::unique_ptr<Pending> start_together(Exec& exec, const Collective& what,
                                          std::vector<Transfer> parts) override {
    if (std::string_view(what.name) == "all_gather") gathered.push_back(bytes_in(parts));
    return inner_.start_together(exec, what, std::move(parts));
  }

 private:
  static int64_t bytes_in(std::span<const Transfer> together) {
    int64_t bytes = 0;
    for (const Transfer& one : together) {
      if (one.kind == Transfer::Kind::kSend) {
        bytes += one.data.shape.elements() * size_of(one.data.dtype);
      }
    }
    return bytes;
  }
};

int64_t numbers_in(const State& state) {
  int64_t sum = 0;
  for (const Tensor& t : state) sum += t.elements();
  return sum;
}

// Parts with halos of a few rows, which are counted separately.
bool is_halo(const SpanRecord& record) {
  const std::string_view program = record.algebra->program();
  return program == "short_conv" || program == "token_shift" || program == "token_mix";
}

constexpr int64_t kRows = 3;  // documents, one per row of the batch

struct Sent {
  std::vector<int64_t> gathered, sent;
  struct Part {
    bool halo;
    int64_t state, transition, chains;  // numbers
  };
  std::vector<Part> parts;
};

// Messages of each of `ranks`, for forward and backward of a layer.
std::vector<Sent> sent_by(const std::string& name, int ranks, int32_t length,
                          const SpanTravel& travel) {
  std::vector<Sent> all(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
    Logged comm(world);
    Rig rig(1);
    const Made made(rig, exec, name);
    std::vector<int32_t> documents;
    for (int32_t r = 0; r <= kRows; ++r) documents.push_back(r * length);
    Sequence sequence = make_sequence(documents, kRows, comm, travel);
    std::vector<SpanRecord> records;
    sequence.records = &records;
    const Tensor x = rig.normal("x", {sequence.tokens(), kHidden});
    SavedStack saved;
    made.mixer->forward(exec, x, {sequence}, saved);
    made.mixer->backward(exec, x, {sequence}, saved);
    Sent mine{comm.gathered, comm.sent, {}};
    for (const SpanRecord& record : records) {
      const int64_t chains = record.entering[0].shape()[0];
      EXPECT_EQ(numbers_in(record.summary.update), numbers_in(record.entering));
      EXPECT_EQ(numbers_in(record.algebra->start(exec, chains)), numbers_in(record.entering));
      mine.parts.push_back({is_halo(record), numbers_in(record.entering),
                            numbers_in(record.summary.transition), chains});
    }
    const std::lock_guard lock(mutex);
    all[static_cast<size_t>(world.rank())] = std::move(mine);
  });
  return all;
}

// Removes one entry equal to `bytes` from the list.
bool take(std::vector<int64_t>& list, int64_t bytes) {
  const auto found = std::find(list.begin(), list.end(), bytes);
  if (found == list.end()) return false;
  list.erase(found);
  return true;
}

// Numbers of a state and of a transition, for each sequence (of mom: for each memory of one), with
// 4 heads of 8 and 12 channels, 2 of them of keys and values where these are fewer, as section 3
// of the specification has them. Decays that are weights are sent as a number of tokens, or as a
// time per channel.
struct Numbers {
  int64_t state, transition;
};
const std::map<std::string, Numbers> kNumbers = {
    {"bla", {4 * 8 * 12, 0}},
    {"rebased", {4 * 36 * (12 + 1), 0}},  // 36 products of 8 features, and a normalizer
    {"retnet", {4 * 8 * 12, 1}},
    {"lightning", {4 * 8 * 12, 1}},
    {"mamba2", {4 * 12 * 9, 4}},  // 36 channels in 4 heads, 12 states
    {"mlstm", {4 * (8 * 12 + 8 + 1), 4}},
    {"gla", {4 * 8 * 12, 4 * 8}},
    {"hgrn2", {4 * 8 * 12, 4 * 8}},
    {"rwkv6", {4 * 8 * 12, 4 * 8}},
    {"liger", {4 * 8 * 12, 4 * 8}},
    {"gateloop", {2 * 4 * 8 * 12, 2 * 4 * 8}},
    {"gfw", {4 * 8 * 12, 4 * (8 + 12)}},
    {"gsa", {4 * 8 * (8 + 12), 4 * 8}},
    {"s4", {5 * 36, 1}},
    {"mamba", {5 * 36, 36}},
    {"deltanet", {4 * 8 * 12, 4 * 8 * 8}},
    {"gated_deltanet", {8 * 8 * 12, 8 * 8 * 8}},  // 8 heads of values
    {"kda", {4 * 8 * 12, 4 * 8 * 8}},
    {"rwkv7", {4 * 8 * 8, 4 * 8 * 8}},
    {"ttt", {4 * 8 * 12, 4 * 8 * 8}},
    {"titans", {2 * 4 * 8 * 12, 4 * 16 * 16}},
    {"mom", {4 * 8 * 12, 4 * 8 * 8}},
};

int64_t sum(const std::vector<int64_t>& list) {
  return std::accumulate(list.begin(), list.end(), int64_t{0});
}

class SpanBytes : public testing::TestWithParam<std::string> {
 protected:
  // The only part that is not a halo.
  static Sent::Part core(const Sent& sent) {
    Sent::Part found{};
    int cores = 0;
    for (const Sent::Part& part : sent.parts) {
      if (!part.halo) found = part, ++cores;
    }
    EXPECT_EQ(cores, 1);
    return found;
  }
};

TEST_P(SpanBytes, AreThoseOfLasp2AndDoNotDependOnTheLength) {
  const Numbers numbers = kNumbers.at(GetParam());
  struct Run {
    int ranks;
    bool overlap;
    int32_t length;
  };
  for (const auto& [ranks, overlap, length] : {Run{2, false, 24}, {4, true, 24}, {4, false, 120}}) {
    for (const Sent& sent : sent_by(GetParam(), ranks, length, {SpanExchange::kGather, overlap})) {
      const Sent::Part mine = core(sent);
      EXPECT_EQ(mine.state, mine.chains * numbers.state);
      EXPECT_EQ(mine.transition, mine.chains * numbers.transition);
      // 2 (W - 1) B H dk dv s, the transitions once, and a flag for each chain: whether states pass
      // it.
      const int64_t forward = (ranks - 1) * (mine.state + mine.transition + mine.chains) * 4,
                    backward = (ranks - 1) * mine.state * 4;
      std::vector<int64_t> gathered = sent.gathered;
      EXPECT_TRUE(take(gathered, forward)) << forward;
      EXPECT_TRUE(take(gathered, backward)) << backward;
      int64_t halos = 0;
      for (const Sent::Part& part : sent.parts) {
        if (part.halo) halos += 2 * part.state + part.transition + part.chains;
      }
      EXPECT_LE(sum(gathered), (ranks - 1) * halos * 4) << "gathers something else too";
    }
  }
}

// B H dk dv s to the next rank forward, and the same size to the previous rank in backward: 1/(W -
// 1) of what a gather of states sends, and neither transitions nor flags.
TEST_P(SpanBytes, OfAScanAreAStateToEachNeighbour) {
  for (const auto& [ranks, length] : {std::pair(2, 24), {3, 120}}) {
    const std::vector<Sent> all = sent_by(GetParam(), ranks, length, {SpanExchange::kScan, true});
    for (int r = 0; r < ranks; ++r) {
      const Sent& mine = all[static_cast<size_t>(r)];
      std::vector<int64_t> sent = mine.sent;
      const int neighbours = (r > 0 ? 1 : 0) + (r + 1 < ranks ? 1 : 0);
      int64_t halos = 0;
      for (const Sent::Part& part : mine.parts) halos += part.halo ? part.state : 0;
      for (int n = 0; n < neighbours; ++n) {
        EXPECT_TRUE(take(sent, core(mine).state * 4)) << "rank " << r << " of " << ranks;
      }
      EXPECT_LE(sum(sent), neighbours * halos * 4) << "sends something else too";
    }
  }
}

// A line whose state is rows of a growing number has no entry.
const std::set<std::string> kRowMixers = {"softmax", "fox", "mla"};

std::vector<std::string> summarized_mixers() {
  std::vector<std::string> names;
  for (const MixerInfo& mixer : mixer_list()) {
    if (!kRowMixers.contains(mixer.name)) names.push_back(mixer.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, SpanBytes, testing::ValuesIn(summarized_mixers()), name_of_case);

}  // namespace
}  // namespace weft::test
