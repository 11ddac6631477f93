#include "tests/support/random_model.h"

#include "core/host_access.h"
#include "parallel/parameter_values.h"

namespace weft::test {
namespace {

constexpr const char* kConfig = R"(
[model]
vocab = 260
hidden = 32
layers = 4
pattern = "LGNF"
[model.layer.L]
mixer = "retnet"
heads = 2
[model.layer.G]
mixer = "gated_deltanet"
heads = 2
[model.layer.N]
mixer = "softmax"
heads = 2
window = 7
[model.layer.F]
mixer = "fox"
heads = 2
pro = true
[model.moe]
experts = 4
active = 2
ffn = 24
[data]
train = ["none"]
[train]
precision = "f32"
)";

}  // namespace

RandomModel::RandomModel(Runtime& runtime, const std::string& text) {
  const Config config = config_from_text(text.empty() ? kConfig : text, "test");
  ParameterStore store;
  const ModelStage stage(config.model, Recompute::kNone, DType::kF32, store);
  store.allocate(runtime.pool(), DType::kF32, ParameterStore::Gradients::kNone);
  initialize(runtime.exec(), store, 5);
  for (Parameter& p : store.all()) {  // so that earlier values matter
    if (p.spec.init.kind != Init::Kind::kNormal) continue;
    for (int64_t i = 0; i < p.shape.elements(); ++i) host<float>(p.master)[i] *= 8;
  }
  Manifest manifest;
  manifest.config = resolved(config);
  save_checkpoint(checkpoint_folder(path()), manifest, saved_weights(store), 0);
}

}  // namespace weft::test
