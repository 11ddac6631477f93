// Qwen3-MoE: QK-norm per head, experts without a shared one; some layers are dense.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_qwen3_moe(const HfConfig& config) {
  LayerConfig layer;
  ModelConfig model = read_qwen_moe(config, layer);
  config.only("attention_bias", false);
  layer.options.set("qk_norm", true);
  layer.options.set("qk_norm_eps", model.norm_eps);
  set_qwen_layers(config, layer, model);
  return model;
}

std::optional<nlohmann::json> write_qwen3_moe(const ModelConfig& model) {
  return write_qwen_moe(model);
}

void map_qwen3_moe(const ModelConfig& model, TensorMap& map) { map_llama_like(model, map); }

}  // namespace weft
