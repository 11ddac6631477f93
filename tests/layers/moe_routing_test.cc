// Routing: gradients compared with differences, losses with their definitions, and edge cases.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/host_access.h"
#include "layers/moe/moe.h"
#include "parallel/parameter_values.h"
#include "tests/layers/gradient_fixture.h"

namespace weft::test {
namespace {

using kernels::Keep;
using kernels::Router;
using kernels::RouterMode;

struct RoutingCase {
  std::string name;
  Router rule;
  AuxScope scope = AuxScope::kMicroBatch;
  double capacity = 0.0;
  Keep keep = Keep::kFirst;
  SharedGate gate = SharedGate::kNone;
};

MoeOptions options_of(const RoutingCase& c, int64_t experts) {
  return {.router = {.rule = c.rule,
                     .experts = experts,
                     .aux_loss = 0.7,
                     .z_loss = 0.3,
                     .scope = c.scope,
                     .capacity = c.capacity,
                     .keep = c.keep},
          .width = 12,
          .shared_width = c.gate == SharedGate::kNone ? 0 : 10,
          .shared_gate = c.gate};
}

class Routed : public Gradients, public testing::WithParamInterface<RoutingCase> {
 protected:
  // Biases large enough to change choices; loads as after a step.
  void prepare_routing(Moe& moe, int64_t experts) {
    prepare();
    if (Parameter* bias = store.find("t.router.bias")) {
      for (int64_t e = 0; e < experts; ++e) {
        host<float>(bias->master)[e] = 0.1f * static_cast<float>(e % 3);
      }
    }
    std::vector<int64_t> counts(static_cast<size_t>(experts));
    std::iota(counts.begin(), counts.end(), 1);
    moe.finish_step(rig.exec, {.counts = counts});
  }
};

// The choice is given (it has no derivative), and so are the pairs that are dropped.
TEST_P(Routed, GradientsAgreeWithDifferences) {
  constexpr int64_t kExperts = 6, kTokens = 21;  // sequences of 7
  const MoeOptions options = options_of(GetParam(), kExperts);
  Moe moe(build(), options);
  prepare_routing(moe, kExperts);
  const Tensor x = rig.normal("x", {kTokens, kHidden});
  const Tensor cotangent = rig.normal("cotangent", {kTokens, kHidden});
  Choices given;
  Tensor rows;
  const auto context_of = [&] {
    StepContext context{.row_tokens = 7};
    context.given = given;
    return context;
  };
  const auto loss = [&] {
    SavedStack saved;
    StepContext context = context_of();
    const double main = dot(moe.forward(rig.exec, x, context, saved), cotangent);
    if (!rows.defined()) {
      rows = context.decided->order.row;
      given[0] = context.decided->index;
    }
    EXPECT_TRUE(SameBits(rows, context.decided->order.row)) << "a step changed who is dropped";
    return main + options.router.aux_loss * context.reports[0].aux +
           options.router.z_loss * context.reports[0].z;
  };
  loss();
  SavedStack saved;
  StepContext context = context_of();
  moe.forward(rig.exec, x, context, saved);
  EXPECT_EQ(context.reports[0].dropped > 0, GetParam().capacity > 0);
  const Tensor dx = moe.backward(rig.exec, cotangent, context, saved);
  EXPECT_TRUE(saved.empty());
  expect_derivative("x", x, dx, loss);
  expect_all_weights(loss);
}

TEST_P(Routed, GivesTheSameBitsForAnyNumberOfThreads) {
  const auto run = [&](int threads) {
    Rig rig(threads);
    ParameterStore store;
    const MoeOptions options = options_of(GetParam(), 12);
    Moe moe({.store = store, .scope = "t.", .hidden = kHidden}, options);
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 3);
    const Tensor x = rig.normal("x", {1009, kHidden}, 20.0);
    SavedStack saved;
    StepContext context;
    std::vector<std::vector<double>> out;
    out.push_back(numbers(moe.forward(rig.exec, x, context, saved)));
    out.push_back(numbers(moe.backward(rig.exec, x, context, saved)));
    for (const Parameter& p : store.all()) out.push_back(numbers(p.grad));
    const MoeReport& report = context.reports[0];
    out.push_back(
        {report.aux, report.z, report.router_entropy, static_cast<double>(report.dropped)});
    return out;
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(Routed, WorksForOneToken) {
  constexpr int64_t kExperts = 6;
  Moe moe(build(), options_of(GetParam(), kExperts));
  prepare_routing(moe, kExperts);
  const Tensor x = rig.normal("x", {1, kHidden});
  SavedStack saved;
  StepContext context;
  const Tensor y = moe.forward(rig.exec, x, context, saved);
  const Tensor dx = moe.backward(rig.exec, y, context, saved);
  for (const double v : numbers(y)) EXPECT_TRUE(std::isfinite(v));
  for (const double v : numbers(dx)) EXPECT_TRUE(std::isfinite(v));
}

const RoutingCase kCases[] = {
    {"softmax", {.active = 2}},
    {"softmax_renormalized_per_sequence", {.renormalize = true, .active = 2}, AuxScope::kSequence},
    {"topk_softmax_by_the_step_before",
     {.mode = RouterMode::kTopkSoftmax, .active = 3},
     AuxScope::kGlobalBatch},
    {"sigmoid", {.mode = RouterMode::kSigmoid, .active = 3, .scale = 1.5f}},
    {"sigmoid_renormalized_with_gate",
     {.mode = RouterMode::kSigmoid, .renormalize = true, .active = 3, .scale = 2.5f},
     AuxScope::kMicroBatch,
     0.0,
     Keep::kFirst,
     SharedGate::kSigmoid},
    {"sigmoid_in_groups_per_sequence",
     {.mode = RouterMode::kSigmoid,
      .renormalize = true,
      .active = 3,
      .groups = 3,
      .kept_groups = 2},
     AuxScope::kSequence},
    {"softmax_in_groups_first_come",
     {.active = 2, .groups = 2, .kept_groups = 1},
     AuxScope::kMicroBatch,
     0.6,
     Keep::kFirst},
    {"topk_softmax_heaviest_stay",
     {.mode = RouterMode::kTopkSoftmax, .active = 2},
     AuxScope::kMicroBatch,
     0.6,
     Keep::kHeaviest,
     SharedGate::kSigmoid},
    {"sigmoid_heaviest_stay",
     {.mode = RouterMode::kSigmoid, .renormalize = true, .active = 2},
     AuxScope::kGlobalBatch,
     0.6,
     Keep::kHeaviest}};

INSTANTIATE_TEST_SUITE_P(Every, Routed, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

class Routing : public Gradients {
 protected:
  struct Result {
    Tensor y, dx;
    MoeReport report;
    weft::Routing routing;
  };
  Result run(const Moe& moe, const Tensor& x, StepContext context = {}) {
    SavedStack saved;
    Result out;
    out.y = moe.forward(rig.exec, x, context, saved);
    out.dx = moe.backward(rig.exec, out.y, context, saved);
    out.report = context.reports.at(0);
    out.routing = *context.decided;
    return out;
  }
};

// All tokens choose expert 3: the output is that expert's alone, with weight 1.
TEST_F(Routing, OneExpertMayTakeAllTokens) {
  Moe moe(build(),
          {.router = {.rule = {.mode = RouterMode::kSigmoid, .renormalize = true}, .experts = 5},
           .width = 12});
  prepare();
  host<float>(store.find("t.router.bias")->master)[3] = 2.0f;  // sigmoids lie between 0 and 1
  const Tensor x = rig.normal("x", {131, kHidden});
  const Result got = run(moe, x);
  EXPECT_EQ(got.report.counts, (std::vector<int64_t>{0, 0, 0, 131, 0}));

  ParameterStore alone;
  const Mlp expert({.store = alone, .scope = "e.", .hidden = kHidden}, 12);
  alone.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
  const auto take = [&](const char* to, const char* from, int64_t elements) {
    std::copy_n(host<float>(store.find(from)->master) + 3 * elements, elements,
                host<float>(alone.find(to)->master));
  };
  take("e.w_gate_up", "t.experts.w_gate_up", 24 * kHidden);
  take("e.w_down", "t.experts.w_down", 12 * kHidden);
  publish(rig.exec, alone);
  SavedStack saved;
  StepContext context;
  const Tensor want = expert.forward(rig.exec, x, context, saved);
  const double bound = 6e-8 * (8 + 2 * std::sqrt(kHidden + 12.0));
  EXPECT_TRUE(Near(got.y, want, bound));
  EXPECT_TRUE(Near(got.dx, expert.backward(rig.exec, want, context, saved), 2 * bound));
  for (const int64_t e : {0, 1, 2, 4}) {  // experts without tokens learn nothing
    for (const double g : numbers(store.find("t.experts.w_down")->grad.row(e))) ASSERT_EQ(g, 0.0);
  }
}

TEST_F(Routing, CapacityKeepsTheMeanTimesTheFactorRoundedUp) {
  RouterOptions o{.rule = {.active = 3}, .experts = 7, .capacity = 1.25};
  EXPECT_EQ(capacity_of(o, 1), 1);
  EXPECT_EQ(capacity_of(o, 101), 55);  // 54.1
  o.capacity = 1.0;                    // 43.3: any imbalance drops pairs
  Moe moe(build(), {.router = o, .width = 4});
  prepare();
  const Result got = run(moe, rig.normal("x", {101, kHidden}));
  int64_t dropped = 0;
  for (int64_t e = 0; e < 7; ++e) {
    const int64_t count = got.report.counts[static_cast<size_t>(e)];
    EXPECT_EQ(got.routing.order.offsets[e + 1] - got.routing.order.offsets[e],
              std::min<int64_t>(count, 44));
    dropped += std::max<int64_t>(0, count - 44);
  }
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(got.report.dropped, dropped);
  EXPECT_EQ(std::accumulate(got.report.counts.begin(), got.report.counts.end(), int64_t{0}), 303);
}

TEST_F(Routing, TheBalanceLossOfSequencesIsTheMeanOfTheirOwn) {
  const auto options = [](AuxScope scope) {
    return MoeOptions{.router = {.rule = {.active = 2}, .experts = 5, .scope = scope}, .width = 4};
  };
  Moe moe(build(), options(AuxScope::kSequence));
  prepare();
  const Tensor x = rig.normal("x", {39, kHidden});
  double mean = 0;
  for (int64_t r = 0; r < 3; ++r) mean += run(moe, x.row_range(r * 13, 13)).report.aux / 3;
  EXPECT_NEAR(run(moe, x, {.row_tokens = 13}).report.aux, mean, 1e-6);
  EXPECT_GT(std::abs(run(moe, x).report.aux - mean), 1e-3) << "scopes do not differ here";
}

TEST_F(Routing, TheBalanceLossOfTheGlobalBatchUsesTheLoadsOfTheStepBefore) {
  Moe moe(build(),
          {.router = {.rule = {.active = 2}, .experts = 4, .scope = AuxScope::kGlobalBatch},
           .width = 4});
  prepare();
  const Tensor x = rig.normal("x", {17, kHidden});
  const auto aux_with = [&](const weft::Routing& routing, const std::vector<double>& f) {
    double sum = 0;
    const auto p = numbers(routing.probabilities);
    for (size_t i = 0; i < p.size(); ++i) sum += 4 * f[i % 4] * p[i] / 17;
    return sum;
  };
  const Result first = run(moe, x);
  std::vector<double> own;
  for (const int64_t c : first.report.counts) own.push_back(static_cast<double>(c) / 34);
  EXPECT_NEAR(first.report.aux, aux_with(first.routing, own), 1e-6) << "the first step: its own";
  moe.finish_step(rig.exec, {.counts = {10, 0, 25, 5}});
  const Result second = run(moe, x);
  EXPECT_NEAR(second.report.aux, aux_with(second.routing, {0.25, 0, 0.625, 0.125}), 1e-6);
}

TEST_F(Routing, TheBiasMovesTowardsTheMeanLoad) {
  Moe moe(build(), {.router = {.rule = {.mode = RouterMode::kSigmoid, .active = 2},
                               .experts = 4,
                               .bias_rate = 0.25},
                    .width = 4});
  prepare();
  moe.finish_step(rig.exec, {.counts = {10, 0, 25, 5}});
  EXPECT_EQ(numbers(store.find("t.router.bias")->value),
            (std::vector<double>{0, 0.25, -0.25, 0.25}));
}

TEST_F(Routing, ForcedBalanceGoesRoundTheExperts) {
  Moe moe(build(), {.router = {.rule = {.active = 3}, .experts = 5, .balance = Balance::kForced},
                    .width = 4});
  prepare();
  const Result got = run(moe, rig.normal("x", {7, kHidden}));
  EXPECT_EQ(got.report.counts, (std::vector<int64_t>{5, 4, 4, 4, 4}));
  for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(host<int32_t>(got.routing.index)[i], i % 5);
}

TEST_F(Routing, EntropyTellsACertainRouterFromAnUndecidedOne) {
  Moe moe(build(), {.router = {.rule = {.active = 1}, .experts = 8}, .width = 4});
  prepare();
  Parameter& weight = *store.find("t.router.weight");
  const Tensor x = rig.normal("x", {31, kHidden});
  std::fill_n(host<float>(weight.master), weight.master.elements(), 0.0f);
  EXPECT_NEAR(run(moe, x).report.router_entropy, std::log(8.0), 1e-6);
  const Tensor large = rig.normal("w", weight.shape, 100.0);
  std::copy_n(host<float>(large), large.elements(), host<float>(weight.master));
  EXPECT_LT(run(moe, x).report.router_entropy, 0.1);
}

}  // namespace
}  // namespace weft::test
