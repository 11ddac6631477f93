// Qwen2-MoE: biases on q, k and v; experts and a shared expert with a sigmoid gate; some layers are
// dense.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_qwen2_moe(const HfConfig& config) {
  LayerConfig layer;
  ModelConfig model = read_qwen_moe(config, layer);
  model.moe.shared_ffn = config.integer("shared_expert_intermediate_size");
  model.moe.shared_gate = true;
  layer.options.set("bias", config.flag("qkv_bias", true));
  set_qwen_layers(config, layer, model);
  return model;
}

std::optional<nlohmann::json> write_qwen2_moe(const ModelConfig& model) {
  std::optional<nlohmann::json> config = write_qwen_moe(model);
  if (!config) return config;
  (*config)["shared_expert_intermediate_size"] =
      model.moe.shared_ffn > 0 ? model.moe.shared_ffn : model.moe.shared * model.moe.ffn;
  (*config)["qkv_bias"] = LayerOptions(model, *find_layer(model, "softmax", "moe")).flag("bias");
  return config;
}

void map_qwen2_moe(const ModelConfig& model, TensorMap& map) { map_llama_like(model, map); }

}  // namespace weft
