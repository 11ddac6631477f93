#include "launcher/loaded_model.h"

namespace weft {

std::vector<SavedTensor> saved_weights(ParameterStore& store) {
  std::vector<SavedTensor> tensors;
  for (Parameter& p : store.all()) {
    tensors.push_back({"parameters/" + p.spec.name, p.spec.global, p.slices, p.master});
  }
  return tensors;
}

LoadedModel::LoadedModel(Runtime& runtime, const FoundCheckpoint& checkpoint, DType precision)
    : config_(config_from_text(checkpoint.manifest.config, checkpoint.path)),
      stage_(config_.model, Recompute::kNone, precision, store_) {
  // The config came with the checkpoint: memory is taken only for tensors that it really holds.
  const CheckpointReader reader(checkpoint);
  for (const Parameter& p : store_.all()) reader.expect("parameters/" + p.spec.name, p.spec.global);
  store_.allocate(runtime.ledger(), precision, ParameterStore::Gradients::kNone);
  load_tensors(checkpoint, saved_weights(store_));
  store_.publish(runtime.exec());
}

}  // namespace weft
