// All implementations of experts, compared with loops in double and their differences; and the
// bytes that they save for backward.
#include "layers/moe/experts.h"
#include "core/host_access.h"
#include "parallel/parameter_values.h"

#include "layers/moe/moe.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::FfnActivation;

constexpr ExpertMode kModes[] = {ExpertMode::kGrouped, ExpertMode::kLoop, ExpertMode::kBlockSparse};
constexpr FfnActivation kActivations[] = {FfnActivation::kSwiglu, FfnActivation::kGelu,
                                          FfnActivation::kRelu2};

struct Case {
  int64_t tokens, active, experts, hidden, width;
  // Which expert choice k of token n goes to.
  std::function<int64_t(int64_t n, int64_t k)> expert;
};

int64_t scattered(int64_t n, int64_t k, int64_t experts) {
  return (n * n * 7 + k * 3 + n / 3) % experts;
}

Routing routing_of(Rig& rig, const Case& c) {
  Routing routing;
  routing.index = rig.exec.empty({c.tokens, c.active}, DType::kI32);
  for (int64_t i = 0; i < c.tokens * c.active; ++i) {
    host<int32_t>(routing.index)[i] = static_cast<int32_t>(c.expert(i / c.active, i % c.active));
  }
  routing.weight = rig.normal("router weight", {c.tokens, c.active}, 0.5);
  routing.order = kernels::order_by_expert(rig.exec, routing.index, c.experts);
  return routing;
}

// One layer of experts with its inputs, outputs and gradients.
struct Layer {
  Layer(Rig& rig, const Case& c, ExpertMode mode, FfnActivation activation, DType type)
      : experts({.store = store,
                 .scope = "t.",
                 .hidden = c.hidden,
                 .compute = type,
                 .activation = activation,
                 .expert_mode = mode},
                c.experts, c.width),
        routing(routing_of(rig, c)) {
    store.allocate(rig.pool, type, ParameterStore::Gradients::kAllocate);
    for (Parameter& p : store.all()) {
      const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.4);
      std::copy_n(host<float>(fresh), p.shape.elements(), host<float>(p.master));
    }
    publish(rig.exec, store);
    x = rig.normal("x", {c.tokens, c.hidden}, 1.0, type);
    dy = rig.normal("dy", {c.tokens, c.hidden});
  }
  void run(Rig& rig) {
    SavedStack saved;
    y = experts.forward(rig.exec, x, routing, saved);
    gradients = experts.backward(rig.exec, dy, routing, saved);
    EXPECT_TRUE(saved.empty());
  }

  ParameterStore store;
  Experts experts;
  Routing routing;
  Tensor x, dy, y;
  Experts::Gradients gradients;
};

double activation(FfnActivation a, const Numbers& pre, size_t i, size_t width) {
  if (a == FfnActivation::kSwiglu) return silu(pre[i]) * pre[width + i];
  if (a == FfnActivation::kGelu) return 0.5 * pre[i] * std::erfc(-pre[i] / std::sqrt(2.0));
  return pre[i] > 0 ? pre[i] * pre[i] : 0;
}

struct Inputs {
  Numbers x, in, down, weight;
};

Numbers naive(const Case& c, FfnActivation a, const Inputs& v) {
  const auto d = static_cast<size_t>(c.hidden), f = static_cast<size_t>(c.width);
  const auto wide = static_cast<size_t>(kernels::pre_width(a, c.width));
  Numbers y(static_cast<size_t>(c.tokens) * d);
  for (int64_t n = 0; n < c.tokens; ++n) {
    for (int64_t k = 0; k < c.active; ++k) {
      const auto e = static_cast<size_t>(c.expert(n, k));
      Numbers pre(wide);
      for (size_t i = 0; i < wide; ++i) {
        for (size_t j = 0; j < d; ++j) pre[i] += v.in[(e * wide + i) * d + j] * v.x[n * d + j];
      }
      const double weight = v.weight[static_cast<size_t>(n * c.active + k)];
      for (size_t i = 0; i < f; ++i) {
        const double h = weight * activation(a, pre, i, f);
        for (size_t j = 0; j < d; ++j) y[n * d + j] += v.down[(e * d + j) * f + i] * h;
      }
    }
  }
  return y;
}

Inputs inputs_of(const Layer& layer) {
  return {numbers(layer.x), numbers(layer.store.all()[0].value),
          numbers(layer.store.all()[1].value), numbers(layer.routing.weight)};
}

// Each product's rounding, relative to the largest result; those before it enter with theirs.
double bound(const Case& c, DType type) {
  return 3 * tolerance(type, std::max({c.hidden, c.width, c.tokens * c.active}));
}

std::vector<Case> cases() {
  const auto all_to = [](int64_t e) { return [e](int64_t, int64_t) { return e; }; };
  const auto over = [](int64_t experts) {
    return [experts](int64_t n, int64_t k) { return scattered(n, k, experts); };
  };
  return {
      {37, 2, 5, 24, 12, over(5)},                                                   // prime
      {101, 3, 16, 17, 13, [](int64_t n, int64_t k) { return n % 2 * 9 + k * 2; }},  // most empty
      {129, 1, 4, 16, 8, all_to(2)},  // all tokens to one expert, a row more than two blocks
      {64, 1, 3, 8, 16, all_to(2)},   // exactly a block, the last expert
      {1, 2, 7, 31, 5, over(7)},      // one token
      {2, 4, 4, 1, 1, [](int64_t, int64_t k) { return k; }},
  };
}

TEST(Experts, EveryModeMatchesNaiveLoops) {
  for (const Case& c : cases()) {
    for (const FfnActivation a : kActivations) {
      for (const ExpertMode mode : kModes) {
        Rig rig;
        Layer layer(rig, c, mode, a, DType::kF32);
        layer.run(rig);
        EXPECT_TRUE(Near(layer.y, naive(c, a, inputs_of(layer)), bound(c, DType::kF32)))
            << c.tokens << " tokens, mode " << static_cast<int>(mode);
      }
    }
  }
}

TEST(Experts, EveryModeHasTheGradientsOfNaiveLoops) {
  const Case c{5, 2, 4, 6, 3, [](int64_t n, int64_t k) { return (n + 2 * k) % 3; }};
  for (const FfnActivation a : kActivations) {
    for (const ExpertMode mode : kModes) {
      Rig rig;
      Layer layer(rig, c, mode, a, DType::kF32);
      layer.run(rig);
      const Inputs at = inputs_of(layer);
      const Numbers dy = numbers(layer.dy);
      const auto slopes_of = [&](Numbers Inputs::*part) {
        return slopes(
            [&](const Numbers& v) {
              Inputs moved = at;
              moved.*part = v;
              return dot(naive(c, a, moved), dy);
            },
            at.*part);
      };
      const double allowed = 1e-8 + bound(c, DType::kF32);
      EXPECT_TRUE(Near(layer.gradients.dx, slopes_of(&Inputs::x), allowed));
      EXPECT_TRUE(Near(layer.gradients.d_weight, slopes_of(&Inputs::weight), allowed));
      EXPECT_TRUE(Near(layer.store.all()[0].grad, slopes_of(&Inputs::in), allowed));
      EXPECT_TRUE(Near(layer.store.all()[1].grad, slopes_of(&Inputs::down), allowed));
    }
  }
}

TEST(Experts, ModesAgreeOnOutputsAndGradients) {
  for (const Case& c : cases()) {
    for (const DType type : kReals) {
      for (const FfnActivation a : kActivations) {
        Rig rig;
        Layer grouped(rig, c, ExpertMode::kGrouped, a, type);
        grouped.run(rig);
        for (const ExpertMode mode : {ExpertMode::kLoop, ExpertMode::kBlockSparse}) {
          Layer other(rig, c, mode, a, type);
          other.run(rig);
          const double allowed = bound(c, type);
          EXPECT_TRUE(Near(other.y, grouped.y, allowed));
          EXPECT_TRUE(Near(other.gradients.dx, grouped.gradients.dx, allowed));
          EXPECT_TRUE(Near(other.gradients.d_weight, grouped.gradients.d_weight, allowed));
          for (size_t p = 0; p < 2; ++p) {
            EXPECT_TRUE(Near(other.store.all()[p].grad, grouped.store.all()[p].grad, allowed))
                << other.store.all()[p].spec.name;
          }
        }
      }
    }
  }
}

// Rows of padding are read with the rows of tokens; garbage in them would show in the weights of
// experts.
TEST(Experts, PaddingNeverReachesAnyResult) {
  const Case c{3, 1, 2, 8, 4, [](int64_t n, int64_t) { return n % 2; }};
  Rig rig;
  // Reused memory contains NaN.
  for (int i = 0; i < 8; ++i) {
    const Tensor dirty = rig.exec.empty({1 << (8 + i)});
    std::fill_n(host<float>(dirty), dirty.elements(), std::nanf(""));
  }
  Layer layer(rig, c, ExpertMode::kBlockSparse, FfnActivation::kSwiglu, DType::kF32);
  layer.run(rig);
  EXPECT_TRUE(
      Near(layer.y, naive(c, FfnActivation::kSwiglu, inputs_of(layer)), bound(c, DType::kF32)));
  for (const Parameter& p : layer.store.all()) {
    for (const double g : numbers(p.grad)) EXPECT_TRUE(std::isfinite(g));
  }
}

// Bytes of activations saved for backward, without x and y.
int64_t kept_bytes(Rig& rig, const Layer& layer) {
  SavedStack saved;
  const int64_t before = rig.ledger.of(Label::kActivations).live;
  const Tensor y = layer.experts.forward(rig.exec, layer.x, layer.routing, saved);
  return rig.ledger.of(Label::kActivations).live - before - y.bytes();
}

TEST(Experts, KeepOnlyTheirPreActivations) {
  const Case c{128, 3, 8, 32, 16, [](int64_t n, int64_t k) { return scattered(n, k, 8); }};
  for (const DType type : kReals) {
    for (const FfnActivation a : kActivations) {
      const int64_t row = size_of(type) * kernels::pre_width(a, c.width);  // s * g * F
      for (const ExpertMode mode : {ExpertMode::kGrouped, ExpertMode::kLoop}) {
        Rig rig;
        const Layer layer(rig, c, mode, a, type);
        EXPECT_EQ(kept_bytes(rig, layer), c.tokens * c.active * row);
      }
      Rig rig;
      const Layer padded(rig, c, ExpertMode::kBlockSparse, a, type);
      EXPECT_LE(kept_bytes(rig, padded),
                (c.tokens * c.active + c.experts * (kExpertBlock - 1)) * row);
    }
  }
}

// Bytes that a whole mixture of experts saves, including routing.
int64_t kept_by_moe(int64_t experts, int64_t active, int64_t width) {
  constexpr int64_t kTokens = 128, kHidden = 64;
  Rig rig;
  ParameterStore store;
  const Moe moe({.store = store, .scope = "t.", .hidden = kHidden, .compute = DType::kBF16},
                {.router = {.rule = {.active = active}, .experts = experts}, .width = width});
  store.allocate(rig.pool, DType::kBF16, ParameterStore::Gradients::kAllocate);
  initialize(rig.exec, store, 5);
  publish(rig.exec, store);
  SavedStack saved;
  const int64_t before = rig.ledger.of(Label::kActivations).live;
  {
    const Tensor x = rig.normal("x", {kTokens, kHidden}, 1.0, DType::kBF16);
    StepContext context;
    moe.forward(rig.exec, x, context, saved);
  }
  return rig.ledger.of(Label::kActivations).live - before;
}

TEST(Experts, HalfAsWideAndTwiceAsManyKeepTheSame) {
  const auto coarse = static_cast<double>(kept_by_moe(16, 4, 448));
  const auto fine = static_cast<double>(kept_by_moe(32, 8, 224));
  EXPECT_LT(std::abs(fine / coarse - 1), 0.05) << coarse << " and " << fine;
}

}  // namespace
}  // namespace weft::test
