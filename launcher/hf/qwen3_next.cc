// Qwen3-Next: three layers of Gated DeltaNet to one of attention with an output gate and a rotation
// of a quarter of each head; norms that scale by 1 + weight; experts and a shared one with a
// sigmoid gate.
//
// Gated DeltaNet's projections are fused per key head h of H with its g value heads:
//   in_proj_qkvz  rows of h: q (dk) | k (dk) | v (g dv) | z (g dv)      in_proj_ba  rows of h: b
//   (g) | a (g)
// and attention's q_proj per head: q (dk) | gate (dk).
#include <algorithm>

#include "launcher/hf/parts.h"

namespace weft {
namespace {

LayerConfig read_delta(const HfConfig& config, const ModelConfig& model) {
  LayerConfig layer;
  layer.mixer = "gated_deltanet";
  layer.options.set("heads", config.integer("linear_num_key_heads"));
  layer.options.set("value_heads", config.integer("linear_num_value_heads"));
  layer.options.set("dk", config.integer("linear_key_head_dim"));
  layer.options.set("dv", config.integer("linear_value_head_dim"));
  layer.options.set("norm_eps", model.norm_eps);
  config.only("linear_conv_kernel_dim", 4);
  return layer;
}

LayerConfig read_gated_attention(const HfConfig& config, const ModelConfig& model) {
  LayerConfig layer = read_attention(config, model);
  const int64_t width = config.integer("head_dim", 256);
  layer.options.set("dk", width);
  layer.options.set("dv", width);
  read_rotation(config, layer, RotatedShare::kQuarter);
  layer.options.set("qk_norm", true);
  layer.options.set("qk_norm_offset", true);
  layer.options.set("qk_norm_eps", model.norm_eps);
  layer.options.set("output_gate", true);
  return layer;
}

// Every fourth layer, unless the config says otherwise.
std::vector<bool> full_attention(const HfConfig& config, int64_t layers) {
  const int64_t interval = std::max<int64_t>(1, config.integer("full_attention_interval", 4));
  std::vector<bool> full;
  for (int64_t i = 0; i < layers; ++i) full.push_back((i + 1) % interval == 0);
  return read_layer_types(config, layers, full);
}

void map_delta(TensorMap& map, int64_t heads, const std::string& weft, const std::string& hf) {
  const int64_t hidden = map.shape_of(weft + "q_proj.weight")[1];
  const int64_t keys = map.shape_of(weft + "q_proj.weight")[0],
                values = map.shape_of(weft + "v_proj.weight")[0],
                value_heads = map.shape_of(weft + "A_log")[0];
  const int64_t dk = keys / heads, group = values / heads, gates = value_heads / heads;
  const int64_t stride = 2 * dk + 2 * group;
  const Shape qkvz{2 * keys + 2 * values, hidden}, ba{2 * value_heads, hidden};
  const auto part = [&](const char* name, int64_t begin, int64_t run) {
    map.rows(weft + name, {0, run * heads}, hf + "in_proj_qkvz.weight", qkvz,
             {begin, run, stride, heads});
  };
  part("q_proj.weight", 0, dk);
  part("k_proj.weight", dk, dk);
  part("v_proj.weight", 2 * dk, group);
  part("g_proj.weight", 2 * dk + group, group);
  map.rows(weft + "b_proj.weight", {0, value_heads}, hf + "in_proj_ba.weight", ba,
           {0, gates, 2 * gates, heads});
  map.rows(weft + "a_proj.weight", {0, value_heads}, hf + "in_proj_ba.weight", ba,
           {gates, gates, 2 * gates, heads});
  const Shape conv{2 * keys + values, 1, 4};
  map.rows(weft + "q_conv1d.weight", {0, keys}, hf + "conv1d.weight", conv, {.run = keys});
  map.rows(weft + "k_conv1d.weight", {0, keys}, hf + "conv1d.weight", conv,
           {.begin = keys, .run = keys});
  map.rows(weft + "v_conv1d.weight", {0, values}, hf + "conv1d.weight", conv,
           {.begin = 2 * keys, .run = values});
  map.whole(weft + "A_log", hf + "A_log");
  map.whole(weft + "dt_bias", hf + "dt_bias");
  map.whole(weft + "o_norm.weight", hf + "norm.weight");
  map.whole(weft + "o_proj.weight", hf + "out_proj.weight");
}

void map_gated_attention(TensorMap& map, const std::string& weft, const std::string& hf) {
  const int64_t width = map.shape_of(weft + "q_norm.weight")[0];
  const Shape q = map.shape_of(weft + "q_proj.weight");
  const int64_t heads = q[0] / width;
  const Shape both{2 * q[0], q[1]};
  map.rows(weft + "q_proj.weight", {0, q[0]}, hf + "q_proj.weight", both,
           {0, width, 2 * width, heads});
  map.rows(weft + "g_proj.weight", {0, q[0]}, hf + "q_proj.weight", both,
           {width, width, 2 * width, heads});
  for (const char* name :
       {"k_proj.weight", "v_proj.weight", "o_proj.weight", "q_norm.weight", "k_norm.weight"}) {
    map.whole(weft + name, hf + name);
  }
}

}  // namespace

ModelConfig read_qwen3_next(const HfConfig& config) {
  ModelConfig model = read_shape(config);
  model.norm_offset = true;
  model.dense.ffn = config.integer("intermediate_size");
  read_experts(config, {}, model);
  model.moe.shared_ffn = config.integer("shared_expert_intermediate_size");
  model.moe.shared_gate = true;
  model.moe.renormalize = config.flag("norm_topk_prob", true);
  config.only("attention_bias", false);
  const std::vector<bool> full = full_attention(config, model.layers);
  std::vector<LayerConfig> layers;
  for (int64_t i = 0; i < model.layers; ++i) {
    LayerConfig layer = full[static_cast<size_t>(i)] ? read_gated_attention(config, model)
                                                     : read_delta(config, model);
    layer.ffn = sparse_layer(config, i) ? "moe" : "dense";
    layers.push_back(layer);
  }
  set_layers(model, layers);
  return model;
}

std::optional<nlohmann::json> write_qwen3_next(const ModelConfig& model) {
  const LayerConfig* attention = find_layer(model, "softmax");
  const LayerConfig* delta = find_layer(model, "gated_deltanet");
  if (attention == nullptr || delta == nullptr) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *attention), config);
  write_experts(model, {}, config);
  const LayerOptions d(model, *delta);
  config["linear_num_key_heads"] = d.integer("heads");
  config["linear_num_value_heads"] = d.integer("value_heads");
  config["linear_key_head_dim"] = d.integer("dk");
  config["linear_value_head_dim"] = d.integer("dv");
  config["linear_conv_kernel_dim"] = 4;
  config["intermediate_size"] = dense_width(model);
  config["shared_expert_intermediate_size"] =
      model.moe.shared_ffn > 0 ? model.moe.shared_ffn : model.moe.shared * model.moe.ffn;
  config["norm_topk_prob"] = model.moe.renormalize;
  config["mlp_only_layers"] = dense_layers(model);
  config["layer_types"] = layer_types(model, "softmax");
  return config;
}

void map_qwen3_next(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  map.ignored("mtp.");  // heads for multi-token prediction, which transformers ignores too
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    const LayerConfig& layer = layer_config_of(model, i);
    map.whole(names.weft + "norm1.weight", names.hf + "input_layernorm.weight");
    map.whole(names.weft + "norm2.weight", names.hf + "post_attention_layernorm.weight");
    if (layer.mixer == "softmax") {
      map_gated_attention(map, names.weft + "mixer.", names.hf + "self_attn.");
    } else {
      map_delta(map, LayerOptions(model, layer).integer("heads"), names.weft + "mixer.",
                names.hf + "linear_attn.");
    }
    if (layer.ffn == "moe") {
      map_qwen_experts(map, names.weft + "moe.", names.hf + "mlp.");
    } else {
      map_mlp(map, names.weft + "mlp.", names.hf + "mlp.");
    }
  }
}

}  // namespace weft
