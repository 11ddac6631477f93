// An expert of limited capacity accepts the same pairs when ranks share the tokens of a micro-batch
// as on one rank with all tokens.
#include <gtest/gtest.h>

#include <mutex>

#include "core/host_access.h"
#include "layers/moe/router.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/parameter_values.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using kernels::Keep;

constexpr int64_t kSequences = 3, kLength = 14, kHidden = 16, kExperts = 5, kActive = 2;

// Tokens of one sequence, on each rank.
using Spans = std::vector<int64_t>;

// By token of the micro-batch and choice: whether the pair stays; and the number of dropped pairs.
struct Decision {
  std::vector<bool> stays = std::vector<bool>(kSequences * kLength * kActive);
  int64_t dropped = 0;
};

// Tokens [begin, begin + count) of every sequence.
void decide(Keep keep, int64_t begin, int64_t count, Communicator* ranks, std::mutex& mutex,
            Decision& out) {
  Rig rig(1);
  ParameterStore store;
  const ExpertRouter router(
      {.store = store, .scope = "t.", .hidden = kHidden},
      {.rule = {.active = kActive}, .experts = kExperts, .capacity = 0.8, .keep = keep});
  store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
  initialize(rig.exec, store, 3);
  publish(rig.exec, store);
  const Tensor all = rig.normal("x", {kSequences * kLength, kHidden});
  const Tensor x = rig.exec.empty({kSequences * count, kHidden});
  for (int64_t s = 0; s < kSequences; ++s) {
    std::copy_n(host<float>(all) + (s * kLength + begin) * kHidden, count * kHidden,
                host<float>(x) + s * count * kHidden);
  }
  StepContext context{.row_tokens = count, .token_ranks = ranks};
  const Routing routing = router.forward(rig.exec, x, context);
  const std::lock_guard lock(mutex);
  for (int64_t n = 0; n < kSequences * count; ++n) {
    const int64_t token = n / count * kLength + begin + n % count;
    for (int64_t k = 0; k < kActive; ++k) {
      out.stays[static_cast<size_t>(token * kActive + k)] =
          host<int32_t>(routing.order.row)[n * kActive + k] >= 0;
    }
  }
  out.dropped += context.reports[0].dropped;
}

class CapacityOverRanks : public testing::TestWithParam<Spans> {};

TEST_P(CapacityOverRanks, DropsWhatOneRankDrops) {
  const Spans& spans = GetParam();
  for (const Keep keep : {Keep::kFirst, Keep::kHeaviest}) {
    std::mutex mutex;
    Decision one, many;
    decide(keep, 0, kLength, nullptr, mutex, one);
    EXPECT_GT(one.dropped, 0);
    run_ranks(static_cast<int>(spans.size()), [&](ThreadComm& ranks, Exec&) {
      int64_t begin = 0;
      for (int r = 0; r < ranks.rank(); ++r) begin += spans[static_cast<size_t>(r)];
      decide(keep, begin, spans[static_cast<size_t>(ranks.rank())], &ranks, mutex, many);
    });
    EXPECT_EQ(many.stays, one.stays);
    EXPECT_EQ(many.dropped, one.dropped);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CapacityOverRanks,
                         testing::Values(Spans{7, 7}, Spans{4, 5, 5}, Spans{3, 3, 4, 4}),
                         [](const auto& info) { return std::to_string(info.param.size()); });

}  // namespace
}  // namespace weft::test
