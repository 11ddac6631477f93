// Mixtral: Mistral's attention, experts whose weights are renormalized over the chosen.
#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kMixtralKeys{.experts = "num_local_experts", .ffn = "intermediate_size"};

}  // namespace

ModelConfig read_mixtral(const HfConfig& config) {
  ModelConfig model = read_shape(config, "rms_norm_eps", 1e-5);
  read_experts(config, kMixtralKeys, model);
  model.moe.renormalize = true;
  LayerConfig layer = read_attention(config, model);
  read_rotation(config, layer);
  layer.options.set("window", config.integer("sliding_window", 0));
  layer.ffn = "moe";
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_mixtral(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "softmax", "moe");
  if (layer == nullptr) return std::nullopt;
  const LayerOptions options(model, *layer);
  nlohmann::json config;
  write_shape(model, config);
  write_attention(options, config);
  write_experts(model, kMixtralKeys, config);
  config["sliding_window"] = window_or_null(options);
  return config;
}

void map_mixtral(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    const std::string moe = names.weft + "moe.", theirs = names.hf + "block_sparse_moe.";
    map_llama_layer(map, names);
    map.whole(moe + "router.weight", theirs + "gate.weight");
    map_experts(map, moe, theirs, numbered_names());
  }
}

}  // namespace weft
