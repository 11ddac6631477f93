// Mamba2: the mixer alone, without feed-forwards.
#include "launcher/hf/mamba_parts.h"

namespace weft {

ModelConfig read_mamba2(const HfConfig& config) {
  ModelConfig model = read_shape(config, "layer_norm_epsilon", 1e-5);
  const Mamba2Keys keys{.heads = "num_heads",
                        .groups = "n_groups",
                        .state = "state_size",
                        .expand = "expand",
                        .taps = "conv_kernel",
                        .conv_bias = "use_conv_bias",
                        .bias = "use_bias"};
  LayerConfig layer = read_mamba2_layer(config, keys, model);
  layer.ffn = "none";
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_mamba2(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "mamba2", "none");
  if (layer == nullptr) return std::nullopt;
  const LayerOptions m(model, *layer);
  if (m.integer("inner") % model.hidden != 0) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config, "layer_norm_epsilon");
  config["num_heads"] = m.integer("heads");
  config["head_dim"] = m.integer("inner") / m.integer("heads");
  config["n_groups"] = m.integer("groups");
  config["state_size"] = m.integer("state");
  config["expand"] = m.integer("inner") / model.hidden;
  config["conv_kernel"] = 4;
  config["use_conv_bias"] = true;
  config["use_bias"] = false;
  return config;
}

void map_mamba2(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map, {.embed = "backbone.embeddings.weight", .norm = "backbone.norm_f.weight"});
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i, "backbone.layers.");
    map.whole(names.weft + "norm1.weight", names.hf + "norm.weight");
    map_mamba2(map, names.weft + "mixer.", names.hf + "mixer.");
  }
}

}  // namespace weft
