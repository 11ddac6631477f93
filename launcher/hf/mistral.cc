// Mistral: Llama whose tokens see only the last sliding_window ones.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_mistral(const HfConfig& config) {
  ModelConfig model = read_shape(config);
  model.dense.ffn = config.integer("intermediate_size");
  LayerConfig layer = read_attention(config, model);
  layer.options.set("rope_base", read_rotation(config).base);
  layer.options.set("window", config.integer("sliding_window", 0));
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_mistral(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "softmax", "dense");
  if (layer == nullptr) return std::nullopt;
  const LayerOptions options(model, *layer);
  nlohmann::json config;
  write_shape(model, config);
  write_attention(options, config);
  config["intermediate_size"] = dense_width(model);
  config["sliding_window"] = nullptr;
  if (options.integer("window") > 0) config["sliding_window"] = options.integer("window");
  return config;
}

void map_mistral(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    map_llama_layer(map, names);
    map_mlp(map, names.weft + "mlp.", names.hf + "mlp.");
  }
}

}  // namespace weft
