// Llama: softmax attention with grouped heads and rotation, dense SwiGLU.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_llama(const HfConfig& config) {
  LayerConfig layer;
  ModelConfig model = read_llama_like(config, layer);
  config.only("attention_bias", false);
  config.only("mlp_bias", false);
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_llama(const ModelConfig& model) {
  std::optional<nlohmann::json> config = write_llama_like(model);
  if (config) (*config)["attention_bias"] = (*config)["mlp_bias"] = false;
  return config;
}

void map_llama(const ModelConfig& model, TensorMap& map) { map_llama_like(model, map); }

}  // namespace weft
