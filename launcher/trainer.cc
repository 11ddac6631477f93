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

// What the layers are told of the ranks around this one, for a micro-batch of `rows` sequences.
StepContext context_of(const Mesh& mesh, const ParallelConfig& parallel, const MicroBatch& micro,
                       int64_t rows) {
  const auto others = [&](std::initializer_list<Axis> axes) {
    Communicator& ranks = mesh.over(axes);
    return ranks.size() > 1 ? &ranks : nullptr;
  };
  return {.row_tokens = micro.sequence.tokens() / rows,
          .first_token = micro.first_token,
          .token_ranks = others({Axis::kTensor, Axis::kSequence}),
          .span_ranks = others({Axis::kSequence}),
          .expert_ranks = others({Axis::kExpertTensor, Axis::kExpert}),
          .travel = parallel.deduplicate ? Travel::kOncePerRank : Travel::kOncePerExpert};
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
  const MicroBatch micro =
      micro_batch_of(exec, batch, {rows.first, rows.count, length},
                     {mesh_->over({Axis::kSequence}), mesh_->over({Axis::kTensor})});
  StepContext context = context_of(*mesh_, config_.parallel, micro, rows.count);
  context.aux_scale = static_cast<float>(share);
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

// Ranks that share experts compute every micro-batch together. Where there is not one for each, ranks
// without compute the last rows again, for the others' sake.
double Trainer::evaluate(const BatchSource& source, int64_t first, int64_t rows) {
  Exec& exec = runtime_.exec();
  const int64_t row_tokens = config_.train.sequence, micro = config_.train.micro_batch;
  const int64_t count = (rows + micro - 1) / micro, data = mesh_->here()[Axis::kData].size;
  const IndexRange mine = mesh_->layout().micro_batches(count);
  double loss_sum = 0;
  int64_t target_tokens = 0;
  for (int64_t m = mine.begin; m < mine.begin + (count + data - 1) / data; ++m) {
    const int64_t row = std::min(m, count - 1) * micro, here = std::min(micro, rows - row);
    const Batch batch = source(runtime_.pool(), first + row, here);
    const MicroBatch cut =
        micro_batch_of(exec, batch, {0, here, row_tokens},
                       {mesh_->over({Axis::kSequence}), mesh_->over({Axis::kTensor})});
    StepContext context = context_of(*mesh_, config_.parallel, cut, here);
    const double loss = model_.evaluate(exec, cut.tokens, cut.targets, cut.sequence, context);
    if (m >= mine.end) continue;
    loss_sum += loss;
    target_tokens += batch.target_tokens;
  }
  Communicator& ranks = mesh_->over({Axis::kData});
  const auto targets = static_cast<double>(sum_over(exec, ranks, target_tokens));
  return sum_over(exec, mesh_->over({Axis::kTensor, Axis::kSequence, Axis::kData}), loss_sum) /
         std::max(1.0, targets);
}

}  // namespace weft
