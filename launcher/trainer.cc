#include "launcher/trainer.h"

#include <algorithm>
#include <cmath>

#include "launcher/micro_batch.h"
#include "launcher/schedule.h"
#include "launcher/step_reports.h"
#include "parallel/agree.h"

namespace weft {
namespace {

Recompute recompute_mode(const TrainConfig& config) {
  if (config.recompute == "full") return Recompute::kFull;
  return config.recompute == "selective" ? Recompute::kSelective : Recompute::kNone;
}

double clip_factor(double norm, double clip) {
  // The same guard against a tiny norm as the common trainers, so that curves can be compared.
  return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
}

// Forward and backward of a step, of the model as one rank would have it: its weights are declared,
// never allocated.
double flops_of_step(const Config& config) {
  ParameterStore whole;
  const ModelStage model(config.model, Recompute::kNone, compute_type(config.train), whole);
  return 3.0 * model.flops_per_token(config.train.sequence) *
         static_cast<double>(config.train.sequence * config.train.global_batch);
}

}  // namespace

DType compute_type(const TrainConfig& config) {
  return config.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

Trainer::Trainer(const Config& config, Runtime& runtime, std::shared_ptr<const Mesh> mesh)
    : config_(config),
      runtime_(runtime),
      mesh_(std::move(mesh)),
      store_(mesh_->here()),
      model_(config.model, recompute_mode(config.train), compute_type(config.train), store_,
             &mesh_->over({Axis::kTensor})) {
  store_.allocate(runtime.ledger(), compute_type(config.train),
                  ParameterStore::Gradients::kAllocate);
  const OptimizerConfig& o = config.optimizer;
  optimizer_ =
      std::make_unique<Optimizer>(store_, runtime.ledger(),
                                  AdamOptions{.beta1 = o.betas[0],
                                              .beta2 = o.betas[1],
                                              .epsilon = o.eps,
                                              .weight_decay = o.weight_decay},
                                  mesh_, config.parallel.zero == 0 ? Zero::kWhole : Zero::kSharded);
  trace_ = RoutingTrace(config);
  flops_ = flops_of_step(config);
}

void Trainer::initialize() {
  store_.initialize(runtime_.exec(), static_cast<uint64_t>(config_.train.seed));
}

StepResult Trainer::step(int64_t step, int64_t first_sample, const BatchSource& source) {
  Exec& exec = runtime_.exec();
  const TrainConfig& train = config_.train;
  StepResult metrics{.step = step, .lr = learning_rate(config_.optimizer, step, train.steps)};

  Communicator& data = mesh_->over({Axis::kData});
  const IndexRange mine = mesh_->layout().micro_batches(train.global_batch / train.micro_batch);
  const int64_t before = mine.begin * train.micro_batch;
  const Batch batch =
      source(runtime_.pool(), first_sample + before, mine.size() * train.micro_batch);
  const double targets =
      std::max<double>(1.0, static_cast<double>(sum_over(exec, data, batch.target_tokens)));
  store_.zero_gradients(exec);

  double loss_sum = 0;
  for (int64_t m = 0; m < mine.size(); ++m) {
    const Rows rows{m * train.micro_batch, train.micro_batch, before};
    loss_sum += micro_batch(batch, rows, targets, metrics);
  }
  // Tensor and sequence ranks share the tokens of a micro-batch, data ranks the micro-batches of a step.
  Communicator& tokens = mesh_->over({Axis::kTensor, Axis::kSequence, Axis::kData});
  metrics.loss = sum_over(exec, tokens, loss_sum) / targets;
  sum_reports(exec, tokens, metrics.moe);
  sum_pruning(exec, tokens, metrics.pruning);
  metrics.tokens = train.global_batch * train.sequence;
  for (const MoeReport& report : metrics.moe) {
    metrics.aux_loss +=
        (report.memories ? report.aux_weight : config_.model.moe.aux_loss) * report.aux;
    metrics.z_loss += config_.model.moe.z_loss * report.z;
  }

  optimizer_->reduce_gradients(exec);
  metrics.grad_norm = optimizer_->gradient_norm(exec);
  metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm);
  if (!metrics.skipped) {
    optimizer_->step(exec, metrics.lr, clip_factor(metrics.grad_norm, config_.optimizer.clip),
                     ++updates_);
    model_.finish_step(metrics.moe);
  }
  return metrics;
}

double Trainer::micro_batch(const Batch& batch, Rows rows, double targets, StepResult& metrics) {
  Exec& exec = runtime_.exec();
  const int64_t length = config_.train.sequence;
  const double share =
      static_cast<double>(rows.count) / static_cast<double>(config_.train.global_batch);
  Communicator &ranks = mesh_->over({Axis::kSequence}), &tensor = mesh_->over({Axis::kTensor}),
               &holders = mesh_->over({Axis::kTensor, Axis::kSequence});
  const MicroBatch micro =
      micro_batch_of(exec, batch, {rows.first, rows.count, length}, {ranks, tensor});
  StepContext context{.aux_scale = static_cast<float>(share),
                      .row_tokens = micro.sequence.tokens() / rows.count,
                      .first_token = micro.first_token,
                      .token_ranks = holders.size() > 1 ? &holders : nullptr,
                      .span_ranks = ranks.size() > 1 ? &ranks : nullptr};
  RoutingTrace::Tokens traced{metrics.step, {}};
  for (const MicroBatch::Run& run : micro.runs) {
    traced.runs.push_back({run.begin + rows.elsewhere * length, run.count});
  }
  trace_.before(exec, traced, context);
  const double loss_sum = model_.train(exec, micro.tokens, micro.targets, micro.sequence,
                                       static_cast<float>(1.0 / targets), context);
  trace_.after(traced, context);
  add_reports(context.reports, share, traced.runs.empty() ? 0 : traced.runs[0].begin, metrics.moe);
  add_pruning(context.pruning, metrics.pruning);
  return loss_sum;
}

std::vector<SavedTensor> Trainer::tensors_to_load(State which) {
  std::vector<SavedTensor> tensors;
  for (Parameter& p : store_.all()) {
    tensors.push_back({"parameters/" + p.spec.name, p.spec.global, p.slices, p.master});
  }
  if (which == State::kWeights) return tensors;
  for (SavedTensor& moment : optimizer_->moments_to_load()) tensors.push_back(std::move(moment));
  return tensors;
}

double Trainer::evaluate(const BatchSource& source, int64_t first, int64_t rows) {
  Exec& exec = runtime_.exec();
  const int64_t row_tokens = config_.train.sequence, micro = config_.train.micro_batch;
  const IndexRange mine = mesh_->layout().micro_batches((rows + micro - 1) / micro);
  const int64_t begin_row = mine.begin * micro, end_row = std::min(rows, mine.end * micro);
  const Batch batch = source(runtime_.pool(), first + begin_row, end_row - begin_row);
  double loss_sum = 0;
  for (int64_t row = 0; row < end_row - begin_row; row += micro) {
    const BatchRows part{row, std::min(micro, end_row - begin_row - row), row_tokens};
    const MicroBatch cut = micro_batch_of(
        exec, batch, part, {mesh_->over({Axis::kSequence}), mesh_->over({Axis::kTensor})});
    loss_sum += model_.evaluate(exec, cut.tokens, cut.targets, cut.sequence);
  }
  Communicator& data = mesh_->over({Axis::kData});
  const auto targets = static_cast<double>(sum_over(exec, data, batch.target_tokens));
  return sum_over(exec, mesh_->over({Axis::kTensor, Axis::kSequence, Axis::kData}), loss_sum) /
         std::max(1.0, targets);
}

}  // namespace weft
