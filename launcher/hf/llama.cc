// Llama: softmax attention with grouped heads and rotation, dense SwiGLU.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_llama(const HfConfig& config) {
  ModelConfig model = read_shape(config);
  model.dense.ffn = config.integer("intermediate_size");
  config.only("attention_bias", false);
  config.only("mlp_bias", false);
  LayerConfig layer = read_attention(config, model);
  layer.options.set("rope_base", read_rotation(config).base);
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_llama(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "softmax", "dense");
  if (layer == nullptr) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *layer), config);
  config["intermediate_size"] = dense_width(model);
  config["attention_bias"] = config["mlp_bias"] = false;
  return config;
}

void map_llama(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    map_llama_layer(map, names);
    map_mlp(map, names.weft + "mlp.", names.hf + "mlp.");
  }
}

}  // namespace weft
