// MiniMax-01: seven layers of Lightning attention to one of softmax attention, experts, and
// residual connections that carry the normed stream: x <- alpha norm(x) + beta f(norm(x)).
//
// Lightning attention's qkv_proj is fused per head: q | k | v. Folders may contain tables of its
// decays, which follow from the config and are not read.
#include <algorithm>

#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kMinimaxKeys{.experts = "num_local_experts", .ffn = "intermediate_size"};
constexpr double kLightningEpsilon = 1e-6;  // fixed by the class, independent of rms_norm_eps

struct Factors {
  const char *alpha, *beta;
};
constexpr Factors kLinear{"linear_attn_alpha_factor", "linear_attn_beta_factor"};
constexpr Factors kFull{"full_attn_alpha_factor", "full_attn_beta_factor"};
constexpr Factors kMlp{"mlp_alpha_factor", "mlp_beta_factor"};

std::array<double, 2> read_factors(const HfConfig& config, const Factors& keys) {
  return {config.number(keys.alpha, 1.0), config.number(keys.beta, 1.0)};
}

LayerConfig read_lightning(const HfConfig& config, const ModelConfig& model) {
  const int64_t heads = config.integer("num_attention_heads");
  const int64_t width = config.integer("head_dim", model.hidden / std::max<int64_t>(1, heads));
  LayerConfig layer;
  layer.mixer = "lightning";
  layer.options.set("heads", heads);
  layer.options.set("dk", width);
  layer.options.set("dv", width);
  layer.options.set("decay_rule", std::string("minimax"));
  layer.options.set("map_values", true);
  layer.options.set("gate", std::string("sigmoid"));
  layer.options.set("joint_norm", true);
  layer.options.set("norm_eps", kLightningEpsilon);
  layer.residual = read_factors(config, kLinear);
  return layer;
}

void map_lightning(TensorMap& map, int64_t heads, const std::string& weft, const std::string& hf) {
  const Shape one = map.shape_of(weft + "q_proj.weight");
  const int64_t width = one[0] / heads;
  const char* parts[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight"};
  for (int64_t i = 0; i < 3; ++i) {
    map.rows(weft + parts[i], {0, one[0]}, hf + "qkv_proj.weight", {3 * one[0], one[1]},
             {i * width, width, 3 * width, heads});
  }
  map.whole(weft + "g_proj.weight", hf + "output_gate.weight");
  map.whole(weft + "o_norm.weight", hf + "norm.weight");
  map.whole(weft + "o_proj.weight", hf + "out_proj.weight");
  for (const char* table : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
    map.ignored(hf + table);
  }
}

}  // namespace

ModelConfig read_minimax(const HfConfig& config) {
  ModelConfig model = read_shape(config, "rms_norm_eps", 1e-5);
  read_experts(config, kMinimaxKeys, model);
  model.moe.renormalize = true;
  config.only("sliding_window", nullptr);
  std::vector<bool> full;
  for (int64_t i = 0; i < model.layers; ++i) full.push_back(i % 2 == 0);
  full = read_layer_types(config, model.layers, full);
  std::vector<LayerConfig> layers;
  for (int64_t i = 0; i < model.layers; ++i) {
    LayerConfig layer = read_attention(config, model);
    if (full[static_cast<size_t>(i)]) {
      read_rotation(config, layer);
      layer.residual = read_factors(config, kFull);
    } else {
      layer = read_lightning(config, model);
    }
    layer.ffn = "moe";
    layer.ffn_residual = read_factors(config, kMlp);
    layer.residual_norm = true;
    layers.push_back(layer);
  }
  set_layers(model, layers);
  return model;
}

std::optional<nlohmann::json> write_minimax(const ModelConfig& model) {
  const LayerConfig* attention = find_layer(model, "softmax", "moe");
  const LayerConfig* lightning = find_layer(model, "lightning", "moe");
  if (attention == nullptr || lightning == nullptr) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *attention), config);
  write_experts(model, kMinimaxKeys, config);
  const auto put = [&](const Factors& keys, const std::array<double, 2>& factors) {
    config[keys.alpha] = factors[0];
    config[keys.beta] = factors[1];
  };
  put(kLinear, lightning->residual);
  put(kFull, attention->residual);
  put(kMlp, attention->ffn_residual);
  config["layer_types"] = layer_types(model, "softmax");
  return config;
}

void map_minimax(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    const LayerConfig& layer = layer_config_of(model, i);
    const std::string moe = names.weft + "moe.", theirs = names.hf + "block_sparse_moe.";
    map.whole(names.weft + "norm1.weight", names.hf + "input_layernorm.weight");
    map.whole(names.weft + "norm2.weight", names.hf + "post_attention_layernorm.weight");
    if (layer.mixer == "softmax") {
      map_attention(map, names.weft + "mixer.", names.hf + "self_attn.");
    } else {
      map_lightning(map, LayerOptions(model, layer).integer("heads"), names.weft + "mixer.",
                    names.hf + "self_attn.");
    }
    map.whole(moe + "router.weight", theirs + "gate.weight");
    map_experts(map, moe, theirs, numbered_names());
  }
}

}  // namespace weft
