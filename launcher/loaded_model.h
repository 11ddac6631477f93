#pragma once

#include "launcher/resume.h"
#include "launcher/runtime.h"
#include "layers/model_stage.h"

namespace weft {

// The weights of a store under the names that checkpoints give them.
std::vector<SavedTensor> saved_weights(ParameterStore& store);

// The model of a checkpoint, without what training needs beside it.
class LoadedModel {
 public:
  LoadedModel(Runtime& runtime, const FoundCheckpoint& checkpoint, DType precision);

  const Config& config() const { return config_; }
  const ModelStage& stage() const { return stage_; }
  ParameterStore& store() { return store_; }

 private:
  Config config_;
  ParameterStore store_;
  ModelStage stage_;
};

}  // namespace weft
