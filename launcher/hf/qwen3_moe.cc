// Qwen3-MoE: QK-norm of each head, experts alone; some layers dense.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_qwen3_moe(const HfConfig& config) {
  ModelConfig model = read_shape(config);
  model.dense.ffn = config.integer("intermediate_size");
  read_experts(config, {}, model);
  model.moe.renormalize = config.flag("norm_topk_prob", false);
  config.only("use_sliding_window", false);
  config.only("attention_bias", false);
  LayerConfig layer = read_attention(config, model);
  layer.options.set("rope_base", read_rotation(config).base);
  layer.options.set("qk_norm", true);
  layer.options.set("qk_norm_eps", model.norm_eps);
  std::vector<LayerConfig> layers;
  for (int64_t i = 0; i < model.layers; ++i) {
    layer.ffn = sparse_layer(config, i) ? "moe" : "dense";
    layers.push_back(layer);
  }
  set_layers(model, layers);
  return model;
}

std::optional<nlohmann::json> write_qwen3_moe(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "softmax", "moe");
  if (layer == nullptr) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *layer), config);
  write_experts(model, {}, config);
  config["intermediate_size"] = dense_width(model);
  config["norm_topk_prob"] = model.moe.renormalize;
  config["mlp_only_layers"] = dense_layers(model);
  return config;
}

void map_qwen3_moe(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    map_llama_layer(map, names);
    if (layer_config_of(model, i).ffn == "moe") {
      map_qwen_experts(map, names.weft + "moe.", names.hf + "mlp.");
    } else {
      map_mlp(map, names.weft + "mlp.", names.hf + "mlp.");
    }
  }
}

}  // namespace weft
