#include "layers/model_stage.h"

#include "layers/mixers/registry.h"
#include "layers/mlp.h"
#include "layers/moe/moe.h"

namespace weft {
namespace {

kernels::Router router_rule(const MoeConfig& c) {
  const auto mode = c.router == "sigmoid_bias"   ? kernels::RouterMode::kSigmoid
                    : c.router == "topk_softmax" ? kernels::RouterMode::kTopkSoftmax
                                                 : kernels::RouterMode::kSoftmax;
  return {.mode = mode,
          .renormalize = c.renormalize,
          .active = c.active,
          .scale = static_cast<float>(c.route_scale),
          .groups = c.n_group,
          .kept_groups = c.topk_group};
}

AuxScope aux_scope(const std::string& name) {
  if (name == "sequence") return AuxScope::kSequence;
  return name == "global_batch" ? AuxScope::kGlobalBatch : AuxScope::kMicroBatch;
}

MoeOptions moe_options(const MoeConfig& c) {
  return {.router = {.rule = router_rule(c),
                     .experts = c.experts,
                     .aux_loss = c.aux_loss,
                     .z_loss = c.z_loss,
                     .scope = aux_scope(c.aux_scope),
                     .bias_rate = c.bias_rate,
                     .capacity = c.capacity,
                     .keep = c.drop_policy == "probs" ? kernels::Keep::kHeaviest
                                                      : kernels::Keep::kFirst,
                     .balance = c.force_balance ? Balance::kForced : Balance::kLearned},
          .width = c.ffn,
          .shared_width = c.shared_ffn > 0 ? c.shared_ffn : c.shared * c.ffn,
          .shared_gate = c.shared_gate ? SharedGate::kSigmoid : SharedGate::kNone};
}

kernels::FfnActivation activation_of(const std::string& name) {
  if (name == "gelu") return kernels::FfnActivation::kGelu;
  if (name == "relu2") return kernels::FfnActivation::kRelu2;
  return kernels::FfnActivation::kSwiglu;
}

ExpertMode mode_of(const std::string& compute) {
  if (compute == "loop") return ExpertMode::kLoop;
  if (compute == "block_sparse") return ExpertMode::kBlockSparse;
  return ExpertMode::kGrouped;
}

std::unique_ptr<FeedForward> make_feed_forward(const ModelConfig& model, const LayerConfig& layer,
                                               const Build& outer) {
  if (layer.ffn == "none") return nullptr;
  Build build = outer.in(layer.ffn == "moe" ? "moe" : "mlp");
  if (layer.ffn == "dense") {
    build.activation = activation_of(model.dense.activation);
    return std::make_unique<Mlp>(build, dense_width(model));
  }
  build.activation = activation_of(model.moe.activation);
  build.expert_mode = mode_of(model.moe.compute);
  return std::make_unique<Moe>(build, moe_options(model.moe));
}

Residual residual(const std::array<double, 2>& factors, bool normed) {
  return {static_cast<float>(factors[0]), static_cast<float>(factors[1]), normed};
}

Block make_block(const ModelConfig& model, const Build& build, Recompute recompute) {
  const LayerConfig& layer = layer_config_of(model, build.layer);
  const RmsNorm::Scale scale{.offset = model.norm_offset ? 1.0f : 0.0f};
  RmsNorm norm1(build, "norm1", scale);
  auto mixer = make_mixer(layer.mixer, MixerBuild{build.in("mixer"), layer.options});
  const Residuals residuals{residual(layer.residual, layer.residual_norm),
                            residual(layer.ffn_residual, layer.residual_norm)};
  if (layer.ffn == "none") {
    return Block(std::move(mixer), norm1, nullptr, nullptr, recompute, build.tensor_ranks,
                 residuals);
  }
  auto norm2 = std::make_unique<RmsNorm>(build, "norm2", scale);
  auto feed_forward = make_feed_forward(model, layer, build);
  return Block(std::move(mixer), norm1, std::move(feed_forward), std::move(norm2), recompute,
               build.tensor_ranks, residuals);
}

std::vector<Block> make_blocks(const ModelConfig& model, const Build& outer, Recompute recompute) {
  std::vector<Block> blocks;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    Build build = outer.in(fmt::format("block.{}", layer));
    build.layer = layer;
    blocks.push_back(make_block(model, build, recompute));
  }
  return blocks;
}

Build outer_build(const ModelConfig& model, DType compute, ParameterStore& store,
                  Communicator* tensor_ranks) {
  return {.store = store,
          .scope = "",
          .hidden = model.hidden,
          .layer = 0,
          .layers = model.layers,
          .compute = compute,
          .norm_epsilon = static_cast<float>(model.norm_eps),
          .tensor_ranks = tensor_ranks};
}

}  // namespace

ModelStage::ModelStage(const ModelConfig& model, Recompute recompute, DType compute,
                       ParameterStore& store, Communicator* tensor_ranks)
    : embedding_(outer_build(model, compute, store, tensor_ranks), model.vocab,
                 static_cast<float>(model.embed_scale)),
      blocks_(make_blocks(model, outer_build(model, compute, store, tensor_ranks), recompute)),
      norm_(outer_build(model, compute, store, tensor_ranks), "norm",
            {.offset = model.norm_offset ? 1.0f : 0.0f,
             .factor = static_cast<float>(model.logit_scale)}),
      head_(outer_build(model, compute, store, tensor_ranks), model.vocab,
            model.tie_embeddings ? &embedding_.table() : nullptr) {}

Tensor ModelStage::run_blocks(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                              StepContext& context, SavedStack& saved) const {
  Tensor x = embedding_.forward(exec, tokens, saved);
  for (const Block& block : blocks_) x = block.forward(exec, x, sequence, context, saved);
  return norm_.forward(exec, x, saved);
}

double ModelStage::train(Exec& exec, const Tensor& tokens, const Tensor& targets,
                         const Sequence& sequence, float scale, StepContext& context) const {
  SavedStack saved;
  const Tensor x = run_blocks(exec, tokens, sequence, context, saved);
  const LossHead::Result loss =
      head_.forward(exec, x, targets, scale, LossHead::Gradients::kYes);
  Tensor dx = norm_.backward(exec, loss.dx, {}, saved);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    dx = block->backward(exec, dx, sequence, context, saved);
  }
  embedding_.backward(exec, dx, saved);
  WEFT_CHECK(saved.empty(), "{} frames saved by forward were not used by backward", saved.depth());
  return loss.loss_sum;
}

double ModelStage::evaluate(Exec& exec, const Tensor& tokens, const Tensor& targets,
                            const Sequence& sequence, StepContext& context) const {
  SavedStack saved;
  const Tensor x = run_blocks(exec, tokens, sequence, context, saved);
  return head_.forward(exec, x, targets, 1.0f, LossHead::Gradients::kNo).loss_sum;
}

Tensor ModelStage::decode(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                          const std::vector<int64_t>& rows, States& states) const {
  states.resize(blocks_.size());
  SavedStack saved;
  StepContext context;
  Tensor x = embedding_.forward(exec, tokens, saved);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i].forward(exec, x, sequence, context, saved, &states[i]);
    saved.clear();
  }
  const Tensor wanted = exec.empty({static_cast<int64_t>(rows.size()), x.shape().back()});
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(x.data<float>() + rows[i] * x.shape().back(), x.shape().back(),
                wanted.data<float>() + static_cast<int64_t>(i) * x.shape().back());
  }
  return head_.logits(exec, norm_.forward(exec, wanted, saved));
}

void ModelStage::finish_step(const std::vector<MoeReport>& step) {
  for (const MoeReport& report : step) {
    if (report.memories) continue;  // nothing but the gradient balances them
    blocks_.at(static_cast<size_t>(report.layer)).finish_step(report);
  }
}

double ModelStage::flops_per_token(int64_t length) const {
  double flops = head_.flops_per_token();
  for (const Block& block : blocks_) flops += block.flops_per_token(length);
  return flops;
}

}  // namespace weft
