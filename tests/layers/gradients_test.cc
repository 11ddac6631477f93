// Backward of every layer against differences of its forward, along a direction u:
//   <grad, u>  against  D(h) = (L(p + h u) - L(p - h u)) / 2h,      L = <cotangent, forward(p)>
// u has length one and lies halfway between the gradient and a random direction: an error in any part of
// the gradient shows, and the signal is of the gradient's own size g. (4 D(h/2) - D(h)) / 3 cancels the
// h^2 term, so that what remains is rounding: L is a sum of f32 numbers, each wrong by a few epsilon = 6e-8,
// so D is wrong by about 10 epsilon |L| / h.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "layers/block.h"
#include "layers/loss.h"
#include "layers/mixers/registry.h"
#include "layers/mlp.h"
#include "layers/model_stage.h"
#include "layers/moe/moe.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHidden = 32;
constexpr double kStep = 1e-2;
constexpr double kRounding = 10 * 6e-8 / kStep;

double dot(const Tensor& a, const Tensor& b) {
  const auto x = numbers(a), y = numbers(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

void shift(const Tensor& t, const Tensor& direction, double by) {
  for (int64_t i = 0; i < t.elements(); ++i) {
    t.data<float>()[i] += static_cast<float>(by * direction.data<float>()[i]);
  }
}

class Gradients : public testing::Test {
 protected:
  // Weights large enough that every term of the gradient matters.
  void prepare() {
    store.allocate(rig.ledger, DType::kF32, ParameterStore::Gradients::kAllocate);
    store.initialize(rig.exec, 3);
    for (Parameter& p : store.all()) {
      if (p.spec.init.kind != Init::Kind::kNormal) continue;
      const Tensor fresh = rig.normal(p.spec.name, p.shape, 0.3);
      std::copy_n(fresh.data<float>(), p.shape.elements(), p.master.data<float>());
    }
    store.publish(rig.exec);
  }

  Build build() { return {.store = store, .scope = "t.", .hidden = kHidden}; }

  double difference(const Tensor& value, const Tensor& u, double h,
                    const std::function<double()>& loss) {
    const auto at = [&](double by) {
      shift(value, u, by);
      store.publish(rig.exec);
      return loss();
    };
    const double above = at(h), below = at(-2 * h);
    at(h);
    return (above - below) / (2 * h);
  }

  // `loss` computes L; the gradient of `value` is `grad`.
  void expect_derivative(const std::string& what, const Tensor& value, const Tensor& grad,
                         const std::function<double()>& loss) {
    const Tensor u = rig.normal("direction " + what, value.shape());
    const double random = std::sqrt(dot(u, u)), size = std::sqrt(dot(grad, grad));
    ASSERT_GT(size, 0.0) << what << " has no gradient at all";
    for (int64_t i = 0; i < u.elements(); ++i) {
      u.data<float>()[i] = static_cast<float>(u.data<float>()[i] / random + grad.data<float>()[i] / size);
    }
    const double length = std::sqrt(dot(u, u));
    for (int64_t i = 0; i < u.elements(); ++i) u.data<float>()[i] /= static_cast<float>(length);
    const double want =
        (4 * difference(value, u, kStep / 2, loss) - difference(value, u, kStep, loss)) / 3;
    EXPECT_NEAR(dot(grad, u), want, 2e-3 * size + kRounding * (std::abs(loss()) + 1)) << what;
  }

  void expect_all_weights(const std::function<double()>& loss) {
    for (Parameter& p : store.all()) expect_derivative(p.spec.name, p.master, p.grad, loss);
  }

  Rig rig;
  ParameterStore store;
};

// Heads in groups and widths that differ, in the words that the mixer knows.
OptionTable uneven_heads(const std::string& mixer) {
  std::string text = "heads = 4\ndk = 8\ndv = 12\n";
  for (const MixerInfo& info : mixer_list()) {
    if (info.name != mixer) continue;
    for (const FieldInfo& option : info.options) {
      if (option.name == "kv_heads") text += "kv_heads = 2\n";
      if (option.name == "value_heads") text += "value_heads = 8\n";
    }
  }
  return OptionTable::parse(text);
}

class MixerGradients : public Gradients, public testing::WithParamInterface<std::string> {};

TEST_P(MixerGradients, OfInputAndWeightsAgreeWithDifferences) {
  const OptionTable options = uneven_heads(GetParam());
  const auto mixer = make_mixer(GetParam(), MixerBuild{build().in("mixer"), options});
  prepare();
  const Sequence sequence = make_sequence(rig.exec, {0, 1, 14, 37});  // a document of one token, odd ones
  const Tensor x = rig.normal("x", {37, kHidden}), cotangent = rig.normal("cotangent", {37, kHidden});
  const auto loss = [&] {
    SavedStack saved;
    return dot(mixer->forward(rig.exec, x, sequence, nullptr, saved), cotangent);
  };
  SavedStack saved;
  mixer->forward(rig.exec, x, sequence, nullptr, saved);
  const Tensor dx = mixer->backward(rig.exec, cotangent, sequence, nullptr, saved);
  EXPECT_TRUE(saved.empty());
  expect_derivative("x", x, dx, loss);
  expect_all_weights(loss);
}

TEST_P(MixerGradients, DocumentsDoNotSeeEachOther) {
  const OptionTable options = OptionTable::parse("heads = 2");
  const auto mixer = make_mixer(GetParam(), MixerBuild{build().in("mixer"), options});
  prepare();
  const Tensor x = rig.normal("x", {29, kHidden});
  SavedStack saved;
  const Tensor together =
      mixer->forward(rig.exec, x, make_sequence(rig.exec, {0, 11, 29}), nullptr, saved);
  const Tensor first = mixer->forward(rig.exec, x.row_range(0, 11),
                                      make_sequence(rig.exec, {0, 11}), nullptr, saved);
  const Tensor second = mixer->forward(rig.exec, x.row_range(11, 18),
                                       make_sequence(rig.exec, {0, 18}), nullptr, saved);
  EXPECT_TRUE(Near(together.row_range(0, 11), first, 1e-6));
  EXPECT_TRUE(Near(together.row_range(11, 18), second, 1e-6));
}

TEST_P(MixerGradients, ALaterTokenChangesNothingBeforeIt) {
  const OptionTable options = OptionTable::parse("heads = 2");
  const auto mixer = make_mixer(GetParam(), MixerBuild{build().in("mixer"), options});
  prepare();
  const Sequence sequence = make_sequence(rig.exec, {0, 23});
  const Tensor x = rig.normal("x", {23, kHidden});
  SavedStack saved;
  const Tensor before = mixer->forward(rig.exec, x, sequence, nullptr, saved);
  x.data<float>()[17 * kHidden + 3] += 1.0f;
  const Tensor after = mixer->forward(rig.exec, x, sequence, nullptr, saved);
  EXPECT_TRUE(SameBits(before.row_range(0, 17), after.row_range(0, 17)));
  EXPECT_FALSE(SameBits(before.row_range(17, 6), after.row_range(17, 6)));
}

std::vector<std::string> mixer_names() {
  std::vector<std::string> names;
  for (const MixerInfo& mixer : mixer_list()) names.push_back(mixer.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, MixerGradients, testing::ValuesIn(mixer_names()),
                         [](const auto& info) { return info.param; });

TEST_F(Gradients, OfLinearWithPartsThatDoNotTouch) {
  // 3 rows of 5: no part fills an alignment unit, so each is multiplied on its own.
  const Linear linear(build(), {{"a", 3}, {"b", 7}}, 5, {.bias = Linear::Bias::kYes});
  prepare();
  const Tensor x = rig.normal("x", {11, 5}), cotangent = rig.normal("cotangent", {11, 10});
  const auto loss = [&] {
    SavedStack saved;
    return dot(linear.forward(rig.exec, x, DType::kF32, saved), cotangent);
  };
  SavedStack saved;
  linear.forward(rig.exec, x, DType::kF32, saved);
  expect_derivative("x", x, linear.backward(rig.exec, cotangent, DType::kF32, saved), loss);
  expect_all_weights(loss);
}

TEST_F(Gradients, OfRmsNorm) {
  const RmsNorm norm(build(), "norm");
  prepare();
  const Tensor x = rig.normal("x", {7, kHidden}), cotangent = rig.normal("cotangent", {7, kHidden});
  const Tensor past = rig.normal("past", {7, kHidden});
  const auto loss = [&] {
    SavedStack saved;
    return dot(norm.forward(rig.exec, x, saved), cotangent) + dot(x, past);
  };
  SavedStack saved;
  norm.forward(rig.exec, x, saved);
  expect_derivative("x", x, norm.backward(rig.exec, cotangent, past, saved), loss);
  expect_all_weights(loss);
}

TEST_F(Gradients, OfDenseFeedForward) {
  const Mlp mlp(build(), 24);
  prepare();
  const Tensor x = rig.normal("x", {13, kHidden}), cotangent = rig.normal("cotangent", {13, kHidden});
  StepContext context;
  const auto loss = [&] {
    SavedStack saved;
    return dot(mlp.forward(rig.exec, x, context, saved), cotangent);
  };
  SavedStack saved;
  mlp.forward(rig.exec, x, context, saved);
  expect_derivative("x", x, mlp.backward(rig.exec, cotangent, context, saved), loss);
  expect_all_weights(loss);
}

// The first `count` rows of candidates whose three most probable experts are clearly apart, so
// that a small step does not change who is chosen (the choice has no derivative).
Tensor decided_rows(Rig& rig, const Moe& moe, const Tensor& candidates, int64_t count) {
  SavedStack saved;
  StepContext context;
  moe.forward(rig.exec, candidates, context, saved);
  const Tensor rows = rig.exec.empty({count, kHidden});
  const int64_t experts = context.decided->probabilities.shape()[1];
  int64_t kept = 0;
  for (int64_t n = 0; n < candidates.shape()[0] && kept < count; ++n) {
    const float* p = context.decided->probabilities.data<float>() + n * experts;
    std::vector<float> sorted(p, p + experts);
    std::sort(sorted.rbegin(), sorted.rend());
    if (std::log(sorted[1] / sorted[2]) < 0.4f || std::log(sorted[0] / sorted[1]) < 0.4f) continue;
    std::copy_n(candidates.data<float>() + n * kHidden, kHidden, rows.data<float>() + kept++ * kHidden);
  }
  EXPECT_EQ(kept, count);
  return rows;
}

TEST_F(Gradients, OfMixtureOfExperts) {
  const MoeOptions options{.router = {.rule = {.renormalize = true, .active = 2},
                                      .experts = 5,
                                      .aux_loss = 0.7,
                                      .z_loss = 0.3},
                           .width = 12,
                           .shared_width = 10};
  const Moe moe(build(), options);
  prepare();
  const Tensor x = decided_rows(rig, moe, rig.normal("x", {299, kHidden}), 17);
  const Tensor cotangent = rig.normal("cotangent", {17, kHidden});
  Tensor chosen;
  const auto loss = [&] {
    SavedStack saved;
    StepContext context;
    const double main = dot(moe.forward(rig.exec, x, context, saved), cotangent);
    if (!chosen.defined()) chosen = context.decided->index;
    EXPECT_TRUE(SameBits(chosen, context.decided->index)) << "a step changed the choice of experts";
    return main + options.router.aux_loss * context.reports[0].aux +
           options.router.z_loss * context.reports[0].z;
  };
  loss();
  SavedStack saved;
  StepContext context;
  moe.forward(rig.exec, x, context, saved);
  expect_derivative("x", x, moe.backward(rig.exec, cotangent, context, saved), loss);
  expect_all_weights(loss);
}

TEST_F(Gradients, OfLossHead) {
  const LossHead head(build(), 37, nullptr);
  prepare();
  const Tensor x = rig.normal("x", {9, kHidden});
  const Tensor targets = rig.exec.empty({9}, DType::kI32);
  for (int i = 0; i < 9; ++i) targets.data<int32_t>()[i] = i == 4 ? -1 : (i * 5) % 37;
  const auto loss = [&] {
    return 0.25 * head.forward(rig.exec, x, targets, 0.25f, LossHead::Gradients::kNo).loss_sum;
  };
  const auto result = head.forward(rig.exec, x, targets, 0.25f, LossHead::Gradients::kYes);
  expect_derivative("x", x, result.dx, loss);
  expect_all_weights(loss);
}

// Embedding, blocks of both kinds of feed-forward, final norm, tied head: the whole chain.
TEST_F(Gradients, OfWholeModel) {
  const Config config = config_from_text(R"(
[model]
vocab = 41
hidden = 32
layers = 3
pattern = "LND"
tie_embeddings = true
[model.layer.L]
mixer = "retnet"
heads = 2
ffn = "moe"
[model.layer.N]
mixer = "softmax"
heads = 4
kv_heads = 2
ffn = "none"
[model.layer.D]
mixer = "bla"
heads = 2
ffn = "dense"
[model.moe]
experts = 4
active = 4
ffn = 16
aux_loss = 0.0
)", "whole_model.toml");
  const ModelStage model(config.model, Recompute::kNone, DType::kF32, store);
  prepare();
  const Sequence sequence = make_sequence(rig.exec, {0, 19, 31});
  const Tensor tokens = rig.exec.empty({31}, DType::kI32), targets = rig.exec.empty({31}, DType::kI32);
  for (int i = 0; i < 31; ++i) {
    tokens.data<int32_t>()[i] = (i * 7 + 3) % 41;
    targets.data<int32_t>()[i] = (i * 11 + 1) % 41;
  }
  const auto loss = [&] { return model.evaluate(rig.exec, tokens, targets, sequence); };
  StepContext context;
  store.zero_gradients(rig.exec);
  EXPECT_NEAR(model.train(rig.exec, tokens, targets, sequence, 1.0f, context), loss(), 1e-3);
  expect_all_weights(loss);
}

}  // namespace
}  // namespace weft::test
