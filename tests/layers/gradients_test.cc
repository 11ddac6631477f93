// Backward of every layer against differences of its forward (tests/layers/gradient_fixture.h).
#include <gtest/gtest.h>

#include <cmath>

#include "core/host_access.h"
#include "layers/basic/loss.h"
#include "layers/basic/mlp.h"
#include "layers/block.h"
#include "layers/model_stage.h"
#include "layers/moe/moe.h"
#include "parallel/parameter_values.h"
#include "tests/layers/gradient_fixture.h"

namespace weft::test {
namespace {

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
  const Tensor x = rig.normal("x", {13, kHidden}),
               cotangent = rig.normal("cotangent", {13, kHidden});
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
// that a small step does not change the choice (which has no derivative).
Tensor decided_rows(Rig& rig, const Moe& moe, const Tensor& candidates, int64_t count) {
  SavedStack saved;
  StepContext context;
  moe.forward(rig.exec, candidates, context, saved);
  const Tensor rows = rig.exec.empty({count, kHidden});
  const int64_t experts = context.decided->probabilities.shape()[1];
  int64_t kept = 0;
  for (int64_t n = 0; n < candidates.shape()[0] && kept < count; ++n) {
    const float* p = host<float>(context.decided->probabilities) + n * experts;
    std::vector<float> sorted(p, p + experts);
    std::sort(sorted.rbegin(), sorted.rend());
    if (std::log(sorted[1] / sorted[2]) < 0.4f || std::log(sorted[0] / sorted[1]) < 0.4f) continue;
    std::copy_n(host<float>(candidates) + n * kHidden, kHidden,
                host<float>(rows) + kept++ * kHidden);
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
  for (int i = 0; i < 9; ++i) host<int32_t>(targets)[i] = i == 4 ? -1 : (i * 5) % 37;
  const auto loss = [&] {
    return 0.25 * head.forward(rig.exec, x, targets, 0.25f, LossHead::Gradients::kNo).loss_sum;
  };
  const auto result = head.forward(rig.exec, x, targets, 0.25f, LossHead::Gradients::kYes);
  expect_derivative("x", x, result.dx, loss);
  expect_all_weights(loss);
}

// Logits are computed block by block: no [tokens, vocab] f32 tensor exists, and results do not
// depend on blocks.
TEST_F(Gradients, OfLossHeadAreFormedInBlocksOfRows) {
  constexpr int64_t kTokens = 6000, kVocab = 600, kPiece = 750;
  const LossHead head(build(), kVocab, nullptr);
  prepare();
  const Tensor x = rig.normal("x", {kTokens, kHidden}),
               targets = rig.exec.empty({kTokens}, DType::kI32);
  for (int64_t i = 0; i < kTokens; ++i) {
    host<int32_t>(targets)[i] = static_cast<int32_t>(i * 7 % kVocab);
  }
  const auto run = [&](int64_t begin, int64_t count) {
    const Tensor part = rig.exec.empty({count}, DType::kI32);
    std::copy_n(host<int32_t>(targets) + begin, count, host<int32_t>(part));
    return head.forward(rig.exec, x.row_range(begin, count), part, 1.0f, LossHead::Gradients::kYes);
  };
  run(0, 1);  // packs the weight
  rig.ledger.restart_peaks();
  const int64_t before = rig.ledger.total().live;
  const auto whole = run(0, kTokens);
  EXPECT_LT(rig.ledger.total().peak - before, kTokens * kVocab * 4 / 2);

  double loss_sum = 0;
  for (int64_t begin = 0; begin < kTokens; begin += kPiece) {
    const auto piece = run(begin, kPiece);
    loss_sum += piece.loss_sum;
    EXPECT_TRUE(SameBits(piece.dx, whole.dx.row_range(begin, kPiece))) << begin;
  }
  EXPECT_NEAR(whole.loss_sum / loss_sum, 1.0, 1e-12);  // equal numbers, added in double
}

// A whole model, with random tokens.
class WholeModel : public Gradients {
 protected:
  void expect_gradients(const Config& config, Recompute recompute = Recompute::kNone) {
    const ModelStage model(config.model, recompute, DType::kF32, store);
    prepare();
    const Sequence sequence = make_sequence({0, 19, 31});
    const Tensor tokens = rig.exec.empty({31}, DType::kI32),
                 targets = rig.exec.empty({31}, DType::kI32);
    for (int i = 0; i < 31; ++i) {
      host<int32_t>(tokens)[i] = (i * 7 + 3) % 41;
      host<int32_t>(targets)[i] = (i * 11 + 1) % 41;
    }
    const auto loss = [&] { return model.evaluate(rig.exec, tokens, targets, sequence); };
    StepContext context;
    zero_gradients(rig.exec, store);
    EXPECT_NEAR(model.train(rig.exec, {tokens, targets, sequence}, context), loss(), 1e-3);
    expect_all_weights(loss);
  }
};

// Embedding, blocks of both kinds of feed-forward, final norm, tied head.
TEST_F(WholeModel, OfPlainBlocks) {
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
)",
                                         "whole_model.toml");
  expect_gradients(config);
}

// Norms that count from one, factors on embedding, logits and both sides of the residual sums, a
// normed residual stream, a shared expert of another width.
constexpr const char* kScaled = R"(
[model]
vocab = 41
hidden = 32
layers = 3
pattern = "LND"
norm_offset = true
embed_scale = 1.5
logit_scale = 0.7
[model.layer.L]
mixer = "retnet"
heads = 2
ffn = "moe"
residual = [0.8, 1.3]
ffn_residual = [1.2, 0.6]
residual_norm = true
[model.layer.N]
mixer = "softmax"
heads = 4
kv_heads = 2
qk_norm = true
qk_norm_offset = true
ffn = "none"
residual = [1.0, 0.4]
[model.layer.D]
mixer = "bla"
heads = 2
ffn = "dense"
ffn_residual = [0.9, 1.0]
[model.moe]
experts = 4
active = 4
ffn = 16
shared_ffn = 11
shared_gate = true
aux_loss = 0.0
)";

TEST_F(WholeModel, OfScaledBlocks) { expect_gradients(config_from_text(kScaled, "scaled.toml")); }

TEST_F(WholeModel, OfScaledBlocksComputedTwice) {
  expect_gradients(config_from_text(kScaled, "scaled.toml"), Recompute::kFull);
}

}  // namespace
}  // namespace weft::test
