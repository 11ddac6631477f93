// OLMoE: QK-norm over all heads at once, many small experts.
#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kOlmoeKeys{.ffn = "intermediate_size"};

}  // namespace

ModelConfig read_olmoe(const HfConfig& config) {
  ModelConfig model = read_shape(config, "rms_norm_eps", 1e-5);
  read_experts(config, kOlmoeKeys, model);
  model.moe.renormalize = config.flag("norm_topk_prob", false);
  config.only("attention_bias", false);
  config.only("clip_qkv", nullptr);
  LayerConfig layer = read_attention(config, model);
  read_rotation(config, layer);
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
  write_experts(model, kOlmoeKeys, config);
  config["norm_topk_prob"] = model.moe.renormalize;
  return config;
}

void map_olmoe(const ModelConfig& model, TensorMap& map) { map_llama_like(model, map); }

}  // namespace weft
