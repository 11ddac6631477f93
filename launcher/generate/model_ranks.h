#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "launcher/checkpoint/loaded_model.h"

namespace weft {

// Options of every command that uses the model of a checkpoint, alone or on the ranks of a job.
struct ModelOptions {
  std::string checkpoint, precision;
  int threads = 0;
  std::vector<std::string> layout = {};  // "parallel.tensor=2"
};
void add_model_options(CLI::App& command, ModelOptions& options);

// The model on this rank. All data ranks hold the same part of the model but process different
// texts.
struct ModelHere {
  // `checkpoint`: a path for open_checkpoint. Collective.
  ModelHere(const std::string& checkpoint, DType precision, int threads,
            std::shared_ptr<const Mesh> mesh, Travel travel);

  bool first() const { return mesh->rank() == 0; }  // the rank that reads input and prints
  HostGroup& data_ranks() const { return mesh->hosts({Axis::kData}); }

  std::shared_ptr<const Mesh> mesh;
  Runtime runtime;
  std::unique_ptr<LoadedModel> loaded;
  FoundCheckpoint found;
  LoadedModel& model;  // the loaded one
};

// Opens the checkpoint, distributes its model over the ranks of this job by options.layout
// (independent of the layout that trained it; default: all ranks are data ranks) and runs `body` on
// each. An exception on one rank ends all of them.
void with_model(const ModelOptions& options, const std::function<void(ModelHere&)>& body);

// The checkpoint's config under another layout. ConfigError if it cannot decode.
Config under_layout(const FoundCheckpoint& checkpoint, const std::vector<std::string>& layout);

}  // namespace weft
