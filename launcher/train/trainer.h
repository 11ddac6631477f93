#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/config/run_config.h"
#include "core/data/sampler.h"
#include "launcher/app/runtime.h"
#include "launcher/train/pipeline.h"
#include "launcher/train/routing_trace.h"
#include "parallel/comm/mesh.h"
#include "parallel/optimizer.h"
#include "parallel/parameter_values.h"

namespace weft {

// What one step did. Losses are means in nats.
struct StepResult {
  int64_t step = 0;     // from 0
  double loss = 0;      // cross-entropy per target token
  double aux_loss = 0;  // balance losses of all layers, with their coefficient
  double z_loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;    // of this step
  bool skipped = false;  // loss or gradients were not finite: nothing was changed
  // Per mixture of experts: counts and dropped are sums over micro-batches, losses and entropies
  // means, the margin the smallest; bad_token counts from the step's first token.
  std::vector<MoeReport> moe = {};
  std::vector<PruningReport> pruning = {};  // sums over the step's micro-batches
  std::vector<int64_t> status = {};         // status words, summed over all ranks
};

// Status of a rank in small numbers, as many on every rank, sent with the gradient norm. Called
// once per step.
using StatusWords = std::function<std::vector<int64_t>()>;

// The tokens of samples [first, first + rows).
using BatchSource = std::function<Batch(Pool& pool, int64_t first, int64_t rows)>;

// One rank's training: owns model, weights and optimizer; takes one step at a time, together with
// the other ranks of the mesh: steps, evaluations and finish() are collective, and what they return
// is the same on every rank.
class Trainer {
 public:
  Trainer(const Config& config, Runtime& runtime,
          std::shared_ptr<const Mesh> mesh = std::make_shared<Mesh>(),
          const TrainerOptions& options = {});

  // Starting values: drawn from the config's seed, or set through parameters() and then publish().
  void initialize();
  void publish() { weft::publish(runtime_.exec(), store_); }

  // The stations of one step, in order: this rank's rows of the batch (which starts at
  // `first_sample`), forward and backward of each micro-batch through the pipeline, sums over the
  // ranks, gradient norm, update.
  StepResult step(int64_t step, int64_t first_sample, const BatchSource& source,
                  const StatusWords& status = {});

  // Weights alone, or everything that a resumed run needs: weights and moments.
  enum class State : uint8_t { kWeights, kEverything };
  std::vector<SavedTensor> tensors_to_load(State which);
  // Weights and moments that this rank answers for. Collective, like all that wants weights whole.
  std::vector<SavedTensor> tensors_to_save();
  int64_t updates() const { return updates_; }
  void resume(int64_t updates) { updates_ = updates; }

  // After the last step: all weights are here; writes the routing trace, where one is asked for.
  void finish();

  double evaluate(const BatchSource& source, int64_t first, int64_t rows);

  // Of this rank. With overlap the rows that other ranks own are those of before the last step
  // until finish(), evaluate(), tensors_to_save() or the next step.
  ParameterStore& parameters() { return store_; }
  const ModelOutline& model() const { return outline_; }  // of all of them
  double flops_per_step() const;  // of the model, forward and backward, without recompute
  // Of all steps since the last reset.
  const PipeTimes& pipe_times() const { return pipe_times_; }
  void reset_pipe_times() { pipe_times_ = {}; }
  const Config& config() const { return config_; }

 private:
  void finish_gradients();

  Config config_;
  Runtime& runtime_;
  std::shared_ptr<const Mesh> mesh_;
  ModelOutline outline_;
  ParameterStore store_;
  Pipeline pipeline_;
  std::optional<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
  RoutingTrace trace_;
  int64_t updates_ = 0;
  PipeTimes pipe_times_;
};

DType compute_type(const TrainConfig& config);

}  // namespace weft
