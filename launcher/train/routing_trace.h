#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/config/run_config.h"
#include "core/files/safetensors.h"
#include "layers/context/feed_forward.h"
#include "parallel/comm/communicator.h"

namespace weft {

// run.routing_trace: which experts every token of a run went to, written to a file or taken from
// one.
//
// The file is a safetensors file with one tensor per step and mixture of experts,
//   step.S.layer.L    i32 [tokens of the step, active]     S and L from 0
// and "experts" in the metadata. Tokens stand in the order of the step's batch and micro-batches
// are consecutive rows of it, so that a trace can be replayed with any other cut into
// micro-batches. Weights, probabilities and losses are not in it: a replaying router computes its
// own for the choices it is given. A trace is held in memory until the run ends (4 active bytes per
// token and layer).
class RoutingTrace {
 public:
  // Runs of the tokens of `step`, which follow each other in a micro-batch.
  struct Run {
    int64_t begin, count;
  };
  struct Tokens {
    int64_t step;
    std::vector<Run> runs;
    int64_t count() const {
      int64_t sum = 0;
      for (const Run& run : runs) sum += run.count;
      return sum;
    }
  };

  RoutingTrace() = default;  // does nothing
  explicit RoutingTrace(const Config& config);

  void before(Exec& exec, const Tokens& tokens, StepContext& context) const;
  void after(const Tokens& tokens, const StepContext& context);
  // The file appears, written by the first rank from what all of them recorded. Collective.
  void finish(Exec& exec, Communicator& world);

 private:
  struct Recorded {
    Shape shape;
    std::vector<int32_t> index;
  };
  void check_file(const Config& config) const;

  std::string write_path_;
  int64_t experts_ = 0, active_ = 0, step_tokens_ = 0;
  std::map<std::string, Recorded> recorded_;
  std::shared_ptr<const SafetensorsFile> replayed_;
  std::vector<int64_t> layers_;  // with experts
};

}  // namespace weft
