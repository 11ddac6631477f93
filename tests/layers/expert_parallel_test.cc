// A mixture with experts on several ranks, as threads: outputs and gradients equal those of one
// rank with all tokens and experts, for every placement. Also checks the bytes that it sends.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "core/host_access.h"
#include "layers/moe/moe.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/comm/traced_comm.h"
#include "parallel/parameter_values.h"
#include "tests/kernels/numeric.h"
#include "tests/support/slices.h"

namespace weft::test {
namespace {

// Choice k of token n.
using Expert = std::function<int64_t(int64_t n, int64_t k)>;

struct Case {
  std::string name;
  std::vector<int64_t> tokens;  // of each rank
  int64_t experts, active;
  Expert expert;
  int width_ranks = 1;
  int64_t hidden = 24, width = 12, shared = 10;
  bool values = true;  // false: all weights are 0, if only bytes matter

  int ranks() const { return static_cast<int>(tokens.size()); }
  int64_t first_token(int rank) const {
    return std::accumulate(tokens.begin(), tokens.begin() + rank, int64_t{0});
  }
  int64_t all_tokens() const { return first_token(ranks()); }
};

struct Way {
  ExpertMode mode = ExpertMode::kGrouped;
  DType type = DType::kF32;
  Travel travel = Travel::kOncePerRank;
  Overlap overlap = Overlap::kOn;
};

// Results of a pass, unsplit. Gradients of weights by name, summed over ranks with different
// tokens.
struct Outcome {
  std::mutex mutex;
  Numbers y, dx;
  std::map<std::string, Numbers> gradients;
  std::vector<int64_t> bytes;  // sent by each rank

  void add_gradient(const Parameter& p, const Coordinates& here) {
    Numbers& whole = gradients[p.spec.name];
    whole.resize(static_cast<size_t>(p.spec.global.elements()));
    const Numbers mine = numbers(p.grad);
    each_element(p, here, [&](size_t local, size_t at) { whole[at] += mine[local]; });
  }
};

MoeOptions options_of(const Case& c) {
  return {.router = {.rule = {.active = c.active}, .experts = c.experts},
          .width = c.width,
          .shared_width = c.shared};
}

Tensor chosen(const Case& c, Rig& rig, int64_t first, int64_t count) {
  const Tensor index = rig.exec.empty({count, c.active}, DType::kI32);
  for (int64_t i = 0; i < index.elements(); ++i) {
    host<int32_t>(index)[i] = static_cast<int32_t>(c.expert(first + i / c.active, i % c.active));
  }
  return index;
}

// The tokens [first, first + count) of the case, on the rank at `here`.
void run_part(const Case& c, const Way& way, Rig& rig, const Coordinates& here, int64_t first,
              int64_t count, Communicator* ranks, Outcome& out) {
  ParameterStore store(here);
  const Moe moe({.store = store,
                 .scope = "t.",
                 .hidden = c.hidden,
                 .compute = way.type,
                 .expert_mode = way.mode},
                options_of(c));
  store.allocate(rig.pool, way.type, ParameterStore::Gradients::kAllocate);
  if (c.values) initialize(rig.exec, store, 5);
  for (Parameter& p : store.all()) {  // large enough that every term matters
    for (int64_t i = 0; i < p.shape.elements(); ++i) host<float>(p.master)[i] *= 15.0f;
  }
  publish(rig.exec, store);
  const Tensor x = rig.normal("x", {c.all_tokens(), c.hidden}, 1.0, way.type),
               dy = rig.normal("dy", {c.all_tokens(), c.hidden});
  StepContext context{.expert_ranks = ranks, .travel = way.travel, .overlap = way.overlap};
  context.given[0] = chosen(c, rig, first, count);
  SavedStack saved;
  const Tensor y = moe.forward(rig.exec, x.row_range(first, count), context, saved);
  const Tensor dx = moe.backward(rig.exec, dy.row_range(first, count), context, saved);
  EXPECT_TRUE(saved.empty());
  const std::lock_guard lock(out.mutex);
  const auto put = [&](const Tensor& part, Numbers& whole) {
    const Numbers mine = numbers(part);
    whole.resize(static_cast<size_t>(c.all_tokens() * c.hidden));
    std::copy(mine.begin(), mine.end(), whole.begin() + first * c.hidden);
  };
  put(y, out.y);
  put(dx, out.dx);
  for (const Parameter& p : store.all()) out.add_gradient(p, here);
}

void run_alone(const Case& c, const Way& way, Outcome& out) {
  Rig rig(1);
  run_part(c, way, rig, {}, 0, c.all_tokens(), nullptr, out);
}

void run_spread(const Case& c, const Way& way, Outcome& out) {
  out.bytes.resize(c.tokens.size());
  run_ranks(c.ranks(), [&](ThreadComm& world, Exec&) {
    Rig rig(1);
    CommTally tally;
    TracedComm ranks(world.split(0, world.rank(), "expert"), "expert", tally, Signatures::kCompare);
    const int rank = world.rank();
    Coordinates here;
    here[Axis::kExpertTensor] = {rank % c.width_ranks, c.width_ranks};
    here[Axis::kExpert] = {rank / c.width_ranks, c.ranks() / c.width_ranks};
    run_part(c, way, rig, here, c.first_token(rank), c.tokens[static_cast<size_t>(rank)], &ranks,
             out);
    out.bytes[static_cast<size_t>(rank)] = tally.of_axis("expert").bytes;
  });
}

Expert scattered(int64_t experts) {
  return [experts](int64_t n, int64_t k) { return (n * n * 7 + n / 3 + k * 5) % experts; };
}

std::vector<Case> cases() {
  return {
      {"two_ranks", {13, 10}, 4, 2, scattered(4)},
      {"one_expert_each", {11, 12}, 2, 1, [](int64_t n, int64_t) { return n % 3 % 2; }},
      {"three_ranks_one_without_tokens", {0, 17, 6}, 6, 3, scattered(6)},
      {"four_ranks_most_experts_empty",
       {7, 1, 0, 11},
       16,
       2,
       [](int64_t n, int64_t k) { return n % 2 * 9 + k * 2; }},
      {"one_expert_takes_all", {5, 6, 7, 1}, 8, 1, [](int64_t, int64_t) { return 5; }},
      {"all_choices_on_one_rank", {5, 6, 7, 1}, 16, 4, [](int64_t, int64_t k) { return 8 + k; }},
      {"eight_ranks", {3, 0, 5, 1, 0, 2, 7, 1}, 16, 3, scattered(16)},
      {"nobody_has_tokens", {0, 0}, 4, 2, scattered(4)},
      {"width_over_two", {13, 10}, 3, 2, scattered(3), 2},
      {"experts_and_width_over_two", {7, 0, 3, 13}, 4, 2, scattered(4), 2},
      {"without_a_shared_expert", {13, 10}, 4, 2, scattered(4), 1, 24, 12, 0},
  };
}

class ExpertRanks : public testing::TestWithParam<Case> {};

// Sums over the experts of a token, over the width of an expert and over tokens are formed in
// another order. In bf16 a token's sum on a rank is rounded once more before it returns.
TEST_P(ExpertRanks, GiveTheOutputsAndGradientsOfOne) {
  const Case& c = GetParam();
  for (const DType type : kReals) {
    for (const ExpertMode mode :
         {ExpertMode::kGrouped, ExpertMode::kLoop, ExpertMode::kBlockSparse}) {
      Outcome one;
      run_alone(c, {mode, type}, one);
      for (const Travel travel : {Travel::kOncePerRank, Travel::kOncePerExpert}) {
        Outcome many;
        run_spread(c, {mode, type, travel}, many);
        const double allowed =
            4 * tolerance(type, std::max({c.hidden, c.width, c.all_tokens() * c.active}));
        EXPECT_TRUE(Near(many.y, one.y, allowed));
        EXPECT_TRUE(Near(many.dx, one.dx, allowed));
        for (const auto& [name, gradient] : one.gradients) {
          EXPECT_TRUE(Near(many.gradients[name], gradient, allowed)) << name;
        }
      }
    }
  }
}

TEST_P(ExpertRanks, ChangeNoBitOfAForwardPassWhenRowsTravelForEveryExpert) {
  const Case& c = GetParam();
  if (c.width_ranks > 1) return;  // sums over the width are cut
  for (const DType type : kReals) {
    for (const ExpertMode mode :
         {ExpertMode::kGrouped, ExpertMode::kLoop, ExpertMode::kBlockSparse}) {
      Outcome one, many;
      run_alone(c, {mode, type}, one);
      run_spread(c, {mode, type, Travel::kOncePerExpert}, many);
      EXPECT_EQ(many.y, one.y) << static_cast<int>(mode);
    }
  }
}

// Overlapping the exchange with the shared expert changes neither bits nor bytes.
TEST_P(ExpertRanks, OverlapChangesNeitherBitsNorBytes) {
  const Case& c = GetParam();
  for (const DType type : kReals) {
    for (const Travel travel : {Travel::kOncePerRank, Travel::kOncePerExpert}) {
      Outcome on, off;
      run_spread(c, {ExpertMode::kGrouped, type, travel, Overlap::kOn}, on);
      run_spread(c, {ExpertMode::kGrouped, type, travel, Overlap::kOff}, off);
      EXPECT_EQ(on.y, off.y);
      EXPECT_EQ(on.dx, off.dx);
      EXPECT_EQ(on.bytes, off.bytes);
      // Sums over ranks are formed here, in the order of threads.
      const double allowed = tolerance(DType::kF32, c.all_tokens() * c.active);
      for (const auto& [name, gradient] : off.gradients) {
        EXPECT_TRUE(Near(on.gradients[name], gradient, allowed)) << name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertRanks, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Bytes that each rank must send at least: its tokens to every other rank that has experts of
// theirs, the outputs of its experts for every token of another rank, and both once more in
// backward.
std::vector<int64_t> fewest_bytes(const Case& c, DType type) {
  const int64_t here = c.experts / c.ranks();
  std::vector<int64_t> rows(c.tokens.size());
  for (int owner = 0; owner < c.ranks(); ++owner) {
    for (int64_t n = c.first_token(owner); n < c.first_token(owner + 1); ++n) {
      std::set<int64_t> there;
      for (int64_t k = 0; k < c.active; ++k) there.insert(c.expert(n, k) / here);
      there.erase(owner);
      rows[static_cast<size_t>(owner)] += std::ssize(there);
      for (const int64_t r : there) ++rows[static_cast<size_t>(r)];
    }
  }
  for (int64_t& count : rows) count *= 2 * c.hidden * size_of(type);
  return rows;
}

// 8 of 64 experts for each token, drawn without replacement.
Expert drawn(int64_t tokens) {
  std::vector<int64_t> choices;
  const RandomStream stream(3, "choices");
  for (int64_t n = 0; n < tokens; ++n) {
    std::vector<int64_t> left(64);
    std::iota(left.begin(), left.end(), int64_t{0});
    for (int64_t k = 0; k < 8; ++k) {
      const auto at =
          left.begin() + static_cast<int64_t>(stream.below(static_cast<uint64_t>(n * 8 + k),
                                                           static_cast<uint64_t>(64 - k)));
      choices.push_back(*at);
      left.erase(at);
    }
  }
  return [choices](int64_t n, int64_t k) { return choices[static_cast<size_t>(n * 8 + k)]; };
}

TEST(ExpertBytes, AreTheFewestPossibleWithinTwoPercent) {
  for (const int ranks : {2, 4, 8}) {
    const std::vector<int64_t> tokens(static_cast<size_t>(ranks), 96 / ranks + 1);
    const Case c{"", tokens, 64, 8, drawn(200), 1, 1024, 4, 0, false};
    Outcome once, often;
    run_spread(c, {ExpertMode::kGrouped, DType::kBF16}, once);
    const std::vector<int64_t> fewest = fewest_bytes(c, DType::kBF16);
    int64_t all_fewest = 0, all = 0;
    for (size_t r = 0; r < fewest.size(); ++r) {
      EXPECT_GE(once.bytes[r], fewest[r]);
      EXPECT_LE(static_cast<double>(once.bytes[r]), 1.02 * static_cast<double>(fewest[r]));
      all += once.bytes[r];
      all_fewest += fewest[r];
    }
    RecordProperty(
        fmt::format("over_fewest_{}_ranks", ranks),
        fmt::format("{:.5f}", static_cast<double>(all) / static_cast<double>(all_fewest)));
    run_spread(c, {ExpertMode::kGrouped, DType::kBF16, Travel::kOncePerExpert}, often);
    EXPECT_GT(often.bytes[0], once.bytes[0]) << "nothing was saved";
  }
}

// Bytes of activations that a mixture of experts saves for backward, without x.
int64_t kept_bytes(const Case& c, Rig& rig, const Coordinates& here, int64_t first, int64_t count,
                   Communicator* ranks) {
  ParameterStore store(here);
  const Moe moe({.store = store, .scope = "t.", .hidden = c.hidden}, options_of(c));
  store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  publish(rig.exec, store);
  const Tensor x = rig.normal("x", {count, c.hidden});
  SavedStack saved;
  const Tensor index = chosen(c, rig, first, count);
  const int64_t before = rig.ledger.of(Label::kActivations).live;
  {
    StepContext context{.expert_ranks = ranks};
    context.given[0] = index;
    moe.forward(rig.exec, x, context, saved);
  }
  return rig.ledger.of(Label::kActivations).live - before;
}

TEST(ExpertMemory, IsTheReceivedRowsAndThePlan) {
  const Case c{"", {64, 64}, 8, 2, scattered(8), 1, 512, 16, 0};
  std::vector<int64_t> kept(2);
  run_ranks(2, [&](ThreadComm& ranks, Exec&) {
    Rig rig(1);
    Coordinates here;
    here[Axis::kExpert] = {ranks.rank(), 2};
    kept[static_cast<size_t>(ranks.rank())] =
        kept_bytes(c, rig, here, ranks.rank() * 64, 64, &ranks);
  });
  for (int rank = 0; rank < 2; ++rank) {
    Rig rig(1);
    const int64_t alone = kept_bytes(c, rig, {}, rank * 64, 64, nullptr);
    int64_t rows = 0, pairs = 0, choices = 0;
    for (int64_t n = 0; n < 128; ++n) {
      int64_t here = 0;
      for (int64_t k = 0; k < 2; ++k) here += c.expert(n, k) / 4 == rank;
      rows += here > 0;
      pairs += here;
      choices = std::max(choices, here);
    }
    const int64_t pre = 4 * 2 * 16 * (pairs - 128);  // for received pairs, not for sent ones
    // The order of received pairs and their weights; the plan's other tables are the host's.
    const int64_t plan = 4 * pairs + 8 * choices * rows;
    const int64_t expected = alone + pre + rows * 512 * 4 + plan;
    EXPECT_NEAR(static_cast<double>(kept[static_cast<size_t>(rank)]), static_cast<double>(expected),
                16 * 64.0)  // tensors start at multiples of 64 bytes
        << rank;
  }
}

}  // namespace
}  // namespace weft::test
