#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "launcher/checkpoint/loaded_model.h"

namespace weft {

// What every command takes that uses the model of a checkpoint, alone or on the ranks of a job.
struct ModelOptions {
  std::string checkpoint, precision;
  int threads = 0;
  std::vector<std::string> layout = {};  // "parallel.tensor=2"
};
void add_model_options(CLI::App& command, ModelOptions& options);

// The model as this rank has it. Data ranks have the same part of the model and texts of their own.
struct ModelHere {
  // `checkpoint`: a path as open_checkpoint takes them. Collective.
  ModelHere(const std::string& checkpoint, DType precision, int threads,
            std::shared_ptr<const Mesh> mesh, Travel travel);

  bool first() const { return mesh->rank() == 0; }  // of all ranks: the one that reads and speaks
  Communicator& data_ranks() const { return mesh->over({Axis::kData}); }

  std::shared_ptr<const Mesh> mesh;
  Runtime runtime;
  std::unique_ptr<LoadedModel> loaded;
  FoundCheckpoint found;
  LoadedModel& model;  // the loaded one
};

// Opens the checkpoint, cuts its model over the ranks of this job as options.layout says (whatever
// layout trained it; all ranks are data ranks where it says nothing) and runs `body` on each. What
// one rank throws ends all of them.
void with_model(const ModelOptions& options, const std::function<void(ModelHere&)>& body);

// The checkpoint's config under another layout. ConfigError for what cannot decode.
Config under_layout(const FoundCheckpoint& checkpoint, const std::vector<std::string>& layout);

}  // namespace weft
