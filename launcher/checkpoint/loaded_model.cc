#include "launcher/checkpoint/loaded_model.h"

#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

ModelConfig without_capacity(ModelConfig model) {
  model.moe.capacity = 0;
  return model;
}

Communicator* others(const Mesh& mesh, std::initializer_list<Axis> axes) {
  Communicator& ranks = mesh.over(axes);
  return ranks.size() > 1 ? &ranks : nullptr;
}

// Expert ranks are neighbours, as tensor ranks are: those of one data rank as long as they fit
// among its tensor ranks.
bool experts_cross_data(const Coordinates& here) {
  return here[Axis::kTensor].size % (here[Axis::kExpert].size * here[Axis::kExpertTensor].size) !=
         0;
}

}  // namespace

std::vector<SavedTensor> saved_weights(ParameterStore& store) {
  std::vector<SavedTensor> tensors;
  for (Parameter& p : store.all()) {
    tensors.push_back({"parameters/" + p.spec.name, p.spec.global, p.slices, p.master});
  }
  return tensors;
}

LoadedModel::LoadedModel(Runtime& runtime, const FoundCheckpoint& checkpoint, DType precision,
                         std::shared_ptr<const Mesh> mesh, Travel travel)
    : config_(config_from_text(checkpoint.manifest.config, checkpoint.path)),
      mesh_(std::move(mesh)),
      travel_(travel),
      shares_experts_(experts_cross_data(mesh_->here())),
      store_(mesh_->here()),
      stage_(without_capacity(config_.model), Recompute::kNone, precision, store_,
             others(*mesh_, {Axis::kTensor})) {
  // The config came with the checkpoint: memory is taken only for tensors that it really holds.
  CheckpointReader reader(checkpoint);
  for (const Parameter& p : store_.all()) reader.expect("parameters/" + p.spec.name, p.spec.global);
  store_.allocate(runtime.pool(), precision, ParameterStore::Gradients::kNone);
  reader.read(saved_weights(store_));
  publish(runtime.exec(), store_);
}

// Nobody asks for balance losses, so no statistics need be summed over the ranks.
StepContext LoadedModel::context() const {
  return {.expert_ranks = others(*mesh_, {Axis::kExpertTensor, Axis::kExpert}), .travel = travel_};
}

Tensor LoadedModel::decode(Exec& exec, const Tensor& tokens, const Sequence& sequence,
                           const std::vector<int64_t>& rows, ModelStage::States& states) const {
  return stage_.decode(exec, tokens, sequence, rows, states, context());
}

bool LoadedModel::anybody(bool mine) const {
  if (!shares_experts_) return mine;
  return mesh_->hosts({Axis::kData}).max(int64_t{mine}) > 0;
}

void LoadedModel::take_part(Exec& exec) const {
  ModelStage::States nobodys;
  decode(exec, exec.zeros({1}, DType::kI32), make_sequence({0, 1}), {0}, nobodys);
}

}  // namespace weft
