#include "layers/model_stage.h"

#include "core/memory/host_table.h"
#include "kernels/rows/gather.h"
#include "layers/basic/mlp.h"
#include "layers/basic/token_shards.h"
#include "layers/mixers/registry.h"
#include "layers/moe/moe.h"
#include "parallel/layout/layout.h"

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

// Parameters of `scope` that were declared after the first `before` belong to `layer` alone; those
// that layers share have names outside their scopes.
void assign_to_layer(ParameterStore& store, size_t before, const std::string& scope,
                     int64_t layer) {
  for (size_t i = before; i < store.all().size(); ++i) {
    ParameterSpec& spec = store.all()[i].spec;
    if (spec.name.starts_with(scope)) spec.layer = layer;
  }
}

std::vector<Block> make_blocks(const ModelConfig& model, const Build& outer, Recompute recompute,
                               const ModelStage::Part& part) {
  std::vector<Block> blocks;
  for (int64_t layer = part.begin; layer < part.end; ++layer) {
    Build build = outer.in(fmt::format("block.{}", layer));
    build.layer = layer;
    const size_t before = build.store.all().size();
    blocks.push_back(make_block(model, build, recompute));
    assign_to_layer(build.store, before, build.scope, layer);
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

// Whether layers before and from `border` on read the values of the first RWKV-7 layer.
bool value_crosses(const ModelConfig& model, int64_t border) {
  const auto reads = [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      if (layer_config_of(model, l).mixer == "rwkv7") return true;
    }
    return false;
  };
  return reads(0, border) && reads(border, model.layers);
}

}  // namespace

ModelStage::ModelStage(const ModelConfig& model, Recompute recompute, DType compute,
                       ParameterStore& store, Communicator* tensor_ranks)
    : ModelStage(model, recompute, compute, store, {0, model.layers}, tensor_ranks) {}

ModelStage::ModelStage(const ModelConfig& model, Recompute recompute, DType compute,
                       ParameterStore& store, const Part& part, Communicator* tensor_ranks)
    : part_(part),
      hidden_(model.hidden),
      tensor_(store.here()[Axis::kTensor]),
      tensor_ranks_(tensor_ranks),
      value_width_(model.hidden / tensor_.size),
      compute_(compute),
      value_enters_(value_crosses(model, part.begin)),
      value_leaves_(value_crosses(model, part.end)) {
  const Build build = outer_build(model, compute, store, tensor_ranks);
  // With one pipe rank the tied head is on this one too, in this stage or in a later one.
  const bool tied_here = model.tie_embeddings && store.here()[Axis::kPipe].size == 1;
  if (part.begin == 0) {
    embedding_.emplace(build, model.vocab, static_cast<float>(model.embed_scale),
                       tied_here ? Embedding::Gradient::kApart : Embedding::Gradient::kInTable);
  }
  blocks_ = make_blocks(model, build, recompute, part);
  if (part.end < model.layers) return;
  const size_t before = store.all().size();
  norm_.emplace(build, "norm",
                RmsNorm::Scale{.offset = model.norm_offset ? 1.0f : 0.0f,
                               .factor = static_cast<float>(model.logit_scale)});
  head_.emplace(build, model.vocab,
                model.tie_embeddings ? &Embedding::table_of(build, model.vocab) : nullptr);
  // Their gradients come before those of the last block, and their values are read after it.
  const int64_t last = part.end > part.begin ? part.end - 1 : -1;
  assign_to_layer(store, before, "norm.", last);
  assign_to_layer(store, before, "head.", last);
}

Crossing ModelStage::forward(Exec& exec, const StageWork& work, const Crossing& entering,
                             LossHead::Gradients gradients, Passage& passage) const {
  Tensor x = begin_forward(exec, work, entering, passage);
  for (int64_t layer = part_.begin; layer < part_.end; ++layer) {
    x = forward_block(exec, work, layer, x, passage);
  }
  return end_forward(exec, work, x, gradients, passage);
}

Tensor ModelStage::begin_forward(Exec& exec, const StageWork& work, const Crossing& entering,
                                 Passage& passage) const {
  if (value_enters_) passage.context.first_value = entering.first_value;
  return first() ? embedding_->forward(exec, work.tokens, passage.saved) : entering.x;
}

Tensor ModelStage::forward_block(Exec& exec, const StageWork& work, int64_t layer, const Tensor& x,
                                 Passage& passage) const {
  if (passage.activity) passage.activity->at("forward", layer);
  return blocks_[static_cast<size_t>(layer - part_.begin)].forward(exec, x, work.sequence,
                                                                   passage.context, passage.saved);
}

Crossing ModelStage::end_forward(Exec& exec, const StageWork& work, const Tensor& x,
                                 LossHead::Gradients gradients, Passage& passage) const {
  if (!last()) return {x, value_leaves_ ? passage.context.first_value : Tensor{}};
  const Tensor normed = norm_->forward(exec, x, passage.saved);
  const LossHead::Result loss = head_->forward(exec, normed, work.targets, work.scale, gradients);
  passage.loss_sum = loss.loss_sum;
  passage.d_last = loss.dx;
  return {};
}

Crossing ModelStage::backward(Exec& exec, const StageWork& work, const Crossing& d_leaving,
                              Passage& passage) const {
  Tensor dx = begin_backward(exec, d_leaving, passage);
  for (int64_t layer = part_.end - 1; layer >= part_.begin; --layer) {
    dx = backward_block(exec, work, layer, dx, passage);
  }
  return end_backward(exec, dx, passage);
}

Tensor ModelStage::begin_backward(Exec& exec, const Crossing& d_leaving, Passage& passage) const {
  if (value_leaves_) passage.context.d_first_value = d_leaving.first_value;
  if (!last()) return d_leaving.x;
  const Tensor d_last = std::move(passage.d_last);
  passage.d_last = {};
  return norm_->backward(exec, d_last, {}, passage.saved);
}

Tensor ModelStage::backward_block(Exec& exec, const StageWork& work, int64_t layer,
                                  const Tensor& dy, Passage& passage) const {
  if (passage.activity) passage.activity->at("backward", layer);
  return blocks_[static_cast<size_t>(layer - part_.begin)].backward(exec, dy, work.sequence,
                                                                    passage.context, passage.saved);
}

Crossing ModelStage::end_backward(Exec& exec, const Tensor& dx, Passage& passage) const {
  Crossing d_entering{dx, {}};
  if (value_enters_) d_entering.first_value = passage.context.d_first_value;
  if (first()) embedding_->backward(exec, dx, passage.saved);
  WEFT_CHECK(passage.saved.empty(), "{} frames saved by forward were not used by backward",
             passage.saved.depth());
  return first() ? Crossing{} : d_entering;
}

// Of so many tokens, those whose residual stream this tensor rank holds.
int64_t ModelStage::rows_here(int64_t tokens) const {
  return even_part(tokens, tensor_.index, tensor_.size).size();
}

Crossing ModelStage::entering(Exec& exec, int64_t tokens) const {
  Crossing in{exec.empty({rows_here(tokens), hidden_}), {}};
  if (value_enters_) in.first_value = exec.empty({tokens, value_width_}, compute_);
  return in;
}

Crossing ModelStage::d_leaving(Exec& exec, int64_t tokens) const {
  Crossing d{exec.empty({rows_here(tokens), hidden_}), {}};
  if (value_leaves_) d.first_value = exec.empty({tokens, value_width_});
  return d;
}

void ModelStage::finish_embedding(Exec& exec) const {
  if (embedding_) embedding_->finish_gradients(exec);
}

void ModelStage::finish_shared(Exec& exec) const {
  for (const Block& block : blocks_) block.finish_gradients(exec);
}

double ModelStage::train(Exec& exec, const StageWork& work, StepContext& context) const {
  Passage passage;
  passage.context = std::move(context);
  forward(exec, work, {}, LossHead::Gradients::kYes, passage);
  backward(exec, work, {}, passage);
  finish_embedding(exec);
  finish_shared(exec);
  context = std::move(passage.context);
  return passage.loss_sum;
}

double ModelStage::evaluate(Exec& exec, const Tensor& tokens, const Tensor& targets,
                            const Sequence& sequence, StepContext& context) const {
  Passage passage;
  passage.context = std::move(context);
  forward(exec, {tokens, targets, sequence}, {}, LossHead::Gradients::kNo, passage);
  context = std::move(passage.context);
  return passage.loss_sum;
}

Tensor ModelStage::decode(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                          const std::vector<int64_t>& rows, States& states,
                          StepContext context) const {
  WEFT_CHECK(first() && last(), "decoding needs all layers on every rank");
  states.resize(blocks_.size());
  SavedStack saved;
  context.first_token = even_part(tokens.elements(), tensor_.index, tensor_.size).begin;
  Tensor x = embedding_->forward(exec, tokens, saved);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i].forward(exec, x, sequence, context, saved, &states[i]);
    saved.clear();
  }
  x = gather_tokens(exec, tensor_ranks_, x, tokens.elements());
  const Tensor wanted = exec.empty({static_cast<int64_t>(rows.size()), x.shape().back()});
  const HostTable<int32_t> index(std::vector<int32_t>(rows.begin(), rows.end()));
  kernels::gather_rows(exec, x, index.view(exec), wanted);
  return head_->logits(exec, norm_->forward(exec, wanted, saved));
}

void ModelStage::finish_step(Exec& exec, const std::vector<MoeReport>& step) {
  for (const MoeReport& report : step) {
    if (report.memories) continue;  // nothing but the gradient balances them
    if (report.layer < part_.begin || report.layer >= part_.end) continue;
    blocks_.at(static_cast<size_t>(report.layer - part_.begin)).finish_step(exec, report);
  }
}

double ModelStage::flops_per_token(int64_t length) const {
  double flops = head_ ? head_->flops_per_token() : 0.0;
  for (const Block& block : blocks_) flops += block.flops_per_token(length);
  return flops;
}

}  // namespace weft
