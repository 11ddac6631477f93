// OLMoE: QK-norm over all heads at once, many small experts.
#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kKeys{.ffn = "intermediate_size"};

}  // namespace

ModelConfig read_olmoe(const HfConfig& config) {
  ModelConfig model = read_shape(config, "rms_norm_eps", 1e-5);
  read_experts(config, kKeys, model);
  model.moe.renormalize = config.flag("norm_topk_prob", false);
  config.only("attention_bias", false);
  config.only("clip_qkv", nullptr);
  LayerConfig layer = read_attention(config, model);
  layer.options.set("rope_base", read_rotation(config).base);
  layer.options.set("qk_norm", true);
  layer.options.set("qk_norm_joint", true);
  layer.options.set("qk_norm_eps", model.norm_eps);
  layer.ffn = "moe";
  set_layers(model, std::vector(static_cast<size_t>(model.layers), layer));
  return model;
}

std::optional<nlohmann::json> write_olmoe(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "softmax", "moe");
  if (layer == nullptr) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *layer), config);
  write_experts(model, kKeys, config);
  config["norm_topk_prob"] = model.moe.renormalize;
  return config;
}

void map_olmoe(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    map_llama_layer(map, names);
    map_qwen_experts(map, names.weft + "moe.", names.hf + "mlp.");
  }
}

}  // namespace weft
