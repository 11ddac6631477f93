#pragma once

#include <string>
#include <vector>

#include "core/data/sampler.h"
#include "launcher/train/fault.h"
#include "launcher/train/overlaps.h"
#include "launcher/train/routing_trace.h"
#include "layers/model_stage.h"
#include "parallel/comm/mesh.h"
#include "parallel/gradient_sync.h"
#include "parallel/schedule.h"

namespace weft {

// The rows of a step's batch that this data rank computes, and what its losses are scaled by.
struct StepBatch {
  int64_t step = 0;
  const Batch& batch;
  int64_t rows_before = 0;  // of the step, on data ranks before this one
  double targets = 1;       // of the whole step
};

// Seconds of a rank: in forwards and backwards, and from the first action of a schedule to the
// last.
struct PipeTimes {
  double busy = 0, whole = 0;
};

// What the micro-batches of this rank's stages add up to.
struct StepSums {
  double loss = 0;  // on the rank with the last stage, else 0
  std::vector<MoeReport> moe = {};
  std::vector<PruningReport> pruning = {};
  PipeTimes times = {};
};

// Settings of tests and measurements, which are no part of a run's config.
struct TrainerOptions {
  Fault fault = {};
  std::string overlap = {};  // overlaps_of
};

// This rank's stages of the model, and the loop over a schedule that runs micro-batches through
// them. One stage that is the whole model where there is one pipe rank; one per virtual stage
// otherwise.
class Pipeline {
 public:
  // Declares the weights of this rank's stages in `store`.
  Pipeline(const Config& config, const Mesh& mesh, ParameterStore& store,
           const TrainerOptions& options = {});

  // Forward and backward of all micro-batches, as parallel.schedule says. Gradients are added up in
  // the order of micro-batches in every schedule. Weights on their way from other ranks are waited
  // for by the layers that use them; with overlap gradients that are complete begin to be summed
  // over the ranks before the last backward is over.
  StepSums train(Exec& exec, const StepBatch& batch, RoutingTrace& trace, GradientSync& sync) const;
  // Forward alone; the sum of losses of the first `counted` micro-batches on the rank with the last
  // stage.
  double evaluate(Exec& exec, const Batch& batch, int counted) const;

  std::vector<ModelStage>& stages() { return stages_; }
  const std::vector<ModelStage>& stages() const { return stages_; }
  const Overlaps& overlaps() const { return overlaps_; }

 private:
  friend class PipelineRun;
  const Config& config_;
  const Mesh& mesh_;
  TrainerOptions options_;
  Overlaps overlaps_;
  std::vector<ModelStage> stages_;  // by chunk
};

// What every pipe rank declares, without memory: all parameters of the model and who holds them.
struct ModelOutline {
  ModelOutline(const Config& config, const Layout& layout);
  std::vector<ParameterSpec> parameters;  // of the whole model, each once, in the order of stages
  double flops_per_token = 0;             // forward

  // Fills in which stages hold what is in `store`.
  void mark_holders(ParameterStore& store) const;
};

}  // namespace weft
