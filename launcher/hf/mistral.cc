// Mistral: Llama with a sliding window over the last sliding_window tokens.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_mistral(const HfConfig& config) {
  LayerConfig layer;
  ModelConfig model = read_llama_like(config, layer);
  layer.options.set("window", config.integer("sliding_window", 0));
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_mistral(const ModelConfig& model) {
  std::optional<nlohmann::json> config = write_llama_like(model);
  if (!config) return config;
  (*config)["sliding_window"] =
      window_or_null(LayerOptions(model, *find_layer(model, "softmax", "dense")));
  return config;
}

void map_mistral(const ModelConfig& model, TensorMap& map) { map_llama_like(model, map); }

}  // namespace weft
