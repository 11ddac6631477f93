// Backward of every layer against central differences of its forward, along random directions:
//   <grad, u>  against  (L(p + h u) - L(p - h u)) / 2h,      L = <cotangent, forward(p)>
// In f32 the difference quotient itself errs by about h^2 (truncation, for smooth layers of unit scale) plus
// eps * |L terms| / h (rounding); with h = 1e-2 both are near 1e-4 of the scale sqrt(terms) that the bound
// below uses.
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

  // `loss` computes L; gradients must already lie in `grad` and in the store.
  void expect_derivative(const std::string& what, const Tensor& value, const Tensor& grad,
                         const std::function<double()>& loss) {
    const Tensor u = rig.normal("direction " + what, value.shape());
    shift(value, u, kStep);
    store.publish(rig.exec);
    const double above = loss();
    shift(value, u, -2 * kStep);
    store.publish(rig.exec);
    const double below = loss();
    shift(value, u, kStep);
    store.publish(rig.exec);
    const double want = (above - below) / (2 * kStep), got = dot(grad, u);
    const double scale = std::sqrt(dot(grad, grad)) + 1e-3 * std::abs(above);
    EXPECT_NEAR(got, want, 2e-2 * scale) << what;
  }

  void expect_all_weights(const std::function<double()>& loss) {
    for (Parameter& p : store.all()) expect_derivative(p.spec.name, p.master, p.grad, loss);
  }

  Rig rig;
  ParameterStore store;
};

class MixerGradients : public Gradients, public testing::WithParamInterface<std::string> {};

TEST_P(MixerGradients, OfInputAndWeightsAgreeWithDifferences) {
  const OptionTable options = OptionTable::parse("heads = 4\nkv_heads = 2\ndk = 8\ndv = 12");
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

// The choice of experts is held fixed, since it has no derivative; its weights come from the router.
TEST_F(Gradients, OfMixtureOfExperts) {
  const MoeOptions options{.router = {.rule = {.renormalize = true, .active = 2},
                                      .experts = 5,
                                      .aux_loss = 0.7,
                                      .z_loss = 0.3},
                           .width = 12,
                           .shared_width = 10};
  const Moe moe(build(), options);
  prepare();
  // Router rows far apart, so that a small step does not change who is chosen.
  Parameter& router = *store.find("t.router.weight");
  for (int64_t i = 0; i < router.shape.elements(); ++i) router.master.data<float>()[i] *= 0.3f;
  const Tensor x = rig.normal("x", {17, kHidden}), cotangent = rig.normal("cotangent", {17, kHidden});
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
