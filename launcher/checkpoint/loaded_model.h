#pragma once

#include <memory>

#include "launcher/app/runtime.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "layers/model_stage.h"
#include "parallel/comm/mesh.h"

namespace weft {

// The weights of a store under the names that checkpoints give them.
std::vector<SavedTensor> saved_weights(ParameterStore& store);

// The model of a checkpoint, without what training needs beside it: all of it, or this rank's part
// where the mesh cuts it over tensor and expert ranks. Experts take every token that comes,
// whatever their capacity in training: what a text gives must not depend on the texts beside it.
class LoadedModel {
 public:
  LoadedModel(Runtime& runtime, const FoundCheckpoint& checkpoint, DType precision,
              std::shared_ptr<const Mesh> mesh = std::make_shared<Mesh>(),
              Travel travel = Travel::kOncePerRank);

  const Config& config() const { return config_; }
  const Mesh& mesh() const { return *mesh_; }
  ParameterStore& store() { return store_; }
  const ModelStage& stage() const { return stage_; }

  // ModelStage::decode, together with the ranks that hold the other parts.
  Tensor decode(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                const std::vector<int64_t>& rows, ModelStage::States& states) const;

  // Data ranks have texts of their own, but where they share experts they decode together: as long
  // as anybody has something to decode, who has nothing takes part with a token that nobody reads.
  bool shares_experts() const { return shares_experts_; }
  bool anybody(bool mine) const;  // collective where experts are shared, else `mine`
  void take_part(Exec& exec) const;

 private:
  StepContext context() const;

  Config config_;
  std::shared_ptr<const Mesh> mesh_;
  Travel travel_;
  bool shares_experts_;  // with other data ranks
  ParameterStore store_;
  ModelStage stage_;
};

}  // namespace weft
