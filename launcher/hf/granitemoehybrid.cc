// Granite 4: Mamba2, attention with or without rotation, experts with a shared one (or only that),
// and four multipliers. Experts are stacked as in Weft.
#include "launcher/hf/mamba_parts.h"
#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kGraniteKeys{.experts = "num_local_experts", .ffn = "intermediate_size"};

LayerConfig read_granite_attention(const HfConfig& config, const ModelConfig& model) {
  LayerConfig layer = read_attention(config, model);
  layer.options.set("scale", config.number("attention_multiplier", 1.0));
  const bool rope = config.text("position_embedding_type", "nope") == "rope";
  layer.options.set("rope", rope);
  if (rope) read_rotation(config, layer);
  return layer;
}

}  // namespace

ModelConfig read_granitemoehybrid(const HfConfig& config) {
  ModelConfig model = read_shape(config);
  model.embed_scale = config.number("embedding_multiplier", 1.0);
  const double divisor = config.number("logits_scaling", 1.0);
  if (divisor <= 0) config.refuse("logits_scaling", "must be above 0");
  model.logit_scale = 1.0 / divisor;
  const double residual = config.number("residual_multiplier", 1.0);
  config.only("attention_bias", false);
  const bool sparse = config.integer("num_local_experts", 8) > 0;
  if (sparse) {
    read_experts(config, kGraniteKeys, model);
    model.moe.router = "topk_softmax";
    model.moe.shared_ffn = config.integer("shared_intermediate_size");
  } else {
    model.dense.ffn = config.integer("shared_intermediate_size");
  }
  const Mamba2Keys keys{.heads = "mamba_n_heads",
                        .groups = "mamba_n_groups",
                        .state = "mamba_d_state",
                        .expand = "mamba_expand",
                        .taps = "mamba_d_conv",
                        .conv_bias = "mamba_conv_bias",
                        .bias = "mamba_proj_bias"};
  std::vector<LayerConfig> layers;
  for (const bool full : read_layer_types(
           config, model.layers, std::vector<bool>(static_cast<size_t>(model.layers), false))) {
    LayerConfig layer =
        full ? read_granite_attention(config, model) : read_mamba2_layer(config, keys, model);
    layer.ffn = sparse ? "moe" : "dense";
    layer.residual = layer.ffn_residual = {1.0, residual};
    layers.push_back(layer);
  }
  set_layers(model, layers);
  return model;
}

std::optional<nlohmann::json> write_granitemoehybrid(const ModelConfig& model) {
  const LayerConfig* mamba = find_layer(model, "mamba2");
  if (mamba == nullptr) return std::nullopt;
  const LayerConfig* attention = find_layer(model, "softmax");
  const bool sparse = mamba->ffn == "moe";
  nlohmann::json config;
  write_shape(model, config);
  config["num_attention_heads"] = 1;
  if (attention != nullptr) {
    const LayerOptions a(model, *attention);
    write_attention(a, config);
    if (a.integer("dk") * a.integer("heads") != model.hidden) return std::nullopt;
    config.erase("head_dim");
    config["attention_multiplier"] = a.number("scale");
    config["position_embedding_type"] = a.flag("rope") ? "rope" : "nope";
  }
  config["num_local_experts"] = 0;
  if (sparse) write_experts(model, kGraniteKeys, config);
  config["shared_intermediate_size"] = !sparse ? dense_width(model)
                                       : model.moe.shared_ffn > 0
                                           ? model.moe.shared_ffn
                                           : model.moe.shared * model.moe.ffn;
  config["embedding_multiplier"] = model.embed_scale;
  config["logits_scaling"] = 1.0 / model.logit_scale;
  config["residual_multiplier"] = mamba->residual[1];
  const LayerOptions m(model, *mamba);
  if (m.integer("inner") % model.hidden != 0) return std::nullopt;
  config["mamba_n_heads"] = m.integer("heads");
  config["mamba_n_groups"] = m.integer("groups");
  config["mamba_d_state"] = m.integer("state");
  config["mamba_d_head"] = m.integer("inner") / m.integer("heads");
  config["mamba_expand"] = m.integer("inner") / model.hidden;
  config["mamba_d_conv"] = 4;
  config["layer_types"] = layer_types(model, "softmax");
  return config;
}

void map_granitemoehybrid(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    const LayerConfig& layer = layer_config_of(model, i);
    map.whole(names.weft + "norm1.weight", names.hf + "input_layernorm.weight");
    map.whole(names.weft + "norm2.weight", names.hf + "post_attention_layernorm.weight");
    if (layer.mixer == "softmax") {
      map_attention(map, names.weft + "mixer.", names.hf + "self_attn.");
    } else {
      map_mamba2(map, names.weft + "mixer.", names.hf + "mamba.");
    }
    std::string shared = names.weft + "mlp.";
    if (layer.ffn == "moe") {
      const std::string moe = names.weft + "moe.", theirs = names.hf + "block_sparse_moe.";
      map.whole(moe + "router.weight", theirs + "router.layer.weight");
      map.whole(moe + "experts.w_gate_up", theirs + "input_linear.weight");
      map.whole(moe + "experts.w_down", theirs + "output_linear.weight");
      shared = moe + "shared.";
    }
    map.whole(shared + "w_gate_up", names.hf + "shared_mlp.input_linear.weight");
    map.whole(shared + "w_down", names.hf + "shared_mlp.output_linear.weight");
  }
}

}  // namespace weft
