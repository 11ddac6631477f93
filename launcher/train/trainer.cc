#include "launcher/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "launcher/train/learning_rate.h"
#include "launcher/train/micro_batch.h"
#include "launcher/train/step_reports.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

double clip_factor(double norm, double clip) {
  // The same guard against a tiny norm as the common trainers, so that curves can be compared.
  return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
}

}  // namespace

DType compute_type(const TrainConfig& config) {
  return config.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

Trainer::Trainer(const Config& config, Runtime& runtime, std::shared_ptr<const Mesh> mesh,
                 const TrainerOptions& options)
    : config_(config),
      runtime_(runtime),
      mesh_(std::move(mesh)),
      outline_(config, mesh_->layout()),
      store_(mesh_->here()),
      pipeline_(config_, *mesh_, store_, options) {
  outline_.mark_holders(store_);
  store_.allocate(runtime.pool(), compute_type(config.train), ParameterStore::Gradients::kAllocate);
  const OptimizerConfig& o = config.optimizer;
  sync_.emplace(store_, *mesh_, config.parallel.zero == 0 ? Zero::kWhole : Zero::kSharded);
  optimizer_ = std::make_unique<Optimizer>(store_, runtime.pool(),
                                           AdamOptions{.beta1 = o.betas[0],
                                                       .beta2 = o.betas[1],
                                                       .epsilon = o.eps,
                                                       .weight_decay = o.weight_decay},
                                           mesh_, *sync_);
  std::vector<std::string> names;
  for (const ParameterSpec& spec : outline_.parameters) names.push_back(spec.name);
  optimizer_->know_all(std::move(names));
  trace_ = RoutingTrace(config);
}

void Trainer::initialize() {
  weft::initialize(runtime_.exec(), store_, static_cast<uint64_t>(config_.train.seed));
}

StepResult Trainer::step(int64_t step, int64_t first_sample, const BatchSource& source,
                         const StatusWords& status) {
  Exec& exec = runtime_.exec();
  const TrainConfig& train = config_.train;
  StepResult metrics{.step = step, .lr = learning_rate(config_.optimizer, step, train.steps)};

  const IndexRange mine = mesh_->layout().micro_batches(train.global_batch / train.micro_batch);
  const int64_t before = mine.begin * train.micro_batch;
  const Batch batch = [&] {
    const TraceScope scope(mesh_->trace(), "data");
    return source(runtime_.pool(), first_sample + before, mine.size() * train.micro_batch);
  }();
  const double targets = std::max<double>(
      1.0, static_cast<double>(mesh_->hosts({Axis::kData}).sum(batch.target_tokens)));
  sync_->start_values(exec);  // behind the small sum, which would wait for them
  zero_gradients(exec, store_);

  const StepSums sums = pipeline_.train(
      exec, {.step = step, .batch = batch, .rows_before = before, .targets = targets}, trace_,
      *sync_);
  pipe_times_.busy += sums.times.busy;
  pipe_times_.whole += sums.times.whole;
  // Tensor and sequence ranks share the tokens of a micro-batch, data ranks the micro-batches of a
  // step, pipe ranks the layers.
  HostGroup &tokens = mesh_->hosts({Axis::kTensor, Axis::kSequence, Axis::kData}),
            &stages = mesh_->hosts({Axis::kPipe});
  metrics.moe = sums.moe;
  sum_reports(tokens, metrics.moe);
  gather_reports(stages, metrics.moe);
  metrics.pruning = sums.pruning;
  sum_pruning(tokens, metrics.pruning);
  gather_pruning(stages, metrics.pruning);
  metrics.tokens = train.global_batch * train.sequence;
  for (const MoeReport& report : metrics.moe) {
    metrics.aux_loss +=
        (report.memories ? report.aux_weight : config_.model.moe.aux_loss) * report.aux;
    metrics.z_loss += config_.model.moe.z_loss * report.z;
  }

  finish_gradients();
  std::vector<double> sums_of_all = {sums.loss};  // with the norm: one reduction for all of them
  if (status) {
    for (const int64_t word : status()) sums_of_all.push_back(static_cast<double>(word));
  }
  const TraceScope scope(mesh_->trace(), "optimizer");
  metrics.grad_norm = optimizer_->gradient_norm(exec, sums_of_all);
  metrics.loss = sums_of_all[0] / targets;
  for (size_t i = 1; i < sums_of_all.size(); ++i) {
    metrics.status.push_back(static_cast<int64_t>(sums_of_all[i]));
  }
  metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm);
  if (!metrics.skipped) {
    optimizer_->step(exec, metrics.lr, clip_factor(metrics.grad_norm, config_.optimizer.clip),
                     ++updates_);
    if (!pipeline_.overlaps().weights) sync_->complete_values(exec);
    for (ModelStage& stage : pipeline_.stages()) stage.finish_step(exec, metrics.moe);
  }
  return metrics;
}

// From what the backwards of this rank added up to sums over all ranks.
void Trainer::finish_gradients() {
  Exec& exec = runtime_.exec();
  mesh_->activity().at("summing gradients");
  const TraceScope scope(mesh_->trace(), "sums of gradients");
  for (const ModelStage& stage : pipeline_.stages()) stage.finish_embedding(exec);
  sync_->sum_over_stages(exec);
  for (const ModelStage& stage : pipeline_.stages()) stage.finish_shared(exec);
  sync_->reduce_gradients(exec);
}

std::vector<SavedTensor> Trainer::tensors_to_save() {
  sync_->complete_values(runtime_.exec());
  return optimizer_->tensors_to_save();
}

void Trainer::finish() {
  sync_->complete_values(runtime_.exec());
  trace_.finish(runtime_.exec(), mesh_->world());
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

// Ranks that share experts compute every micro-batch together. Where there is not one for each,
// ranks without compute the next one's too, for the others' sake.
double Trainer::evaluate(const BatchSource& source, int64_t first, int64_t rows) {
  Exec& exec = runtime_.exec();
  sync_->complete_values(exec);
  const int64_t micro = config_.train.micro_batch, length = config_.train.sequence;
  const int64_t count = (rows + micro - 1) / micro, data = mesh_->here()[Axis::kData].size;
  const IndexRange mine = mesh_->layout().micro_batches(count);
  const int64_t begin_row = mine.begin * micro,
                end_row = std::min(rows, begin_row + (count + data - 1) / data * micro);
  const Batch batch = source(runtime_.pool(), first + begin_row, end_row - begin_row);
  const double loss_sum = pipeline_.evaluate(exec, batch, static_cast<int>(mine.size()));
  const int64_t own_tokens = std::min(mine.size() * micro, end_row - begin_row) * length;
  const auto all_targets =
      static_cast<double>(mesh_->hosts({Axis::kData}).sum(count_targets(batch, own_tokens)));
  const double sum = mesh_->hosts({Axis::kTensor, Axis::kSequence, Axis::kData}).sum(loss_sum);
  return mesh_->hosts({Axis::kPipe}).sum(sum) / std::max(1.0, all_targets);
}

double Trainer::flops_per_step() const {
  return 3.0 * outline_.flops_per_token *
         static_cast<double>(config_.train.sequence * config_.train.global_batch);
}

}  // namespace weft
