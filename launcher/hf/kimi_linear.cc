// Kimi Linear: three layers of KDA to one of latent attention without rotation; experts chosen by
// sigmoids with a balancing bias, a shared expert, the first layers dense.
//
// A query of latent attention is stored own | shared part; Weft's order is shared | own.
#include <algorithm>

#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kKimiKeys{.active = "num_experts_per_token"};
constexpr double kLatentEpsilon = 1e-6;  // fixed by the class, independent of rms_norm_eps

// Older folders have these keys in a separate table.
struct LinearKeys {
  int64_t heads, width, taps;
};
LinearKeys read_linear(const HfConfig& config) {
  const HfConfig table = config.table("linear_attn_config");
  return {table.integer("num_heads", config.integer("linear_num_heads", 32)),
          table.integer("head_dim", config.integer("linear_head_dim", 128)),
          table.integer("short_conv_kernel_size", config.integer("linear_conv_kernel_dim", 4))};
}

std::vector<bool> read_full_layers(const HfConfig& config, int64_t layers) {
  std::vector<bool> full;
  for (int64_t i = 0; i < layers; ++i) full.push_back(i > 0 && i % 4 == 0);
  const HfConfig table = config.table("linear_attn_config");
  if (table.has("full_attn_layers")) {
    std::fill(full.begin(), full.end(), false);
    for (const int64_t layer : table.integers("full_attn_layers")) {  // counted from one
      if (layer < 1 || layer > layers) table.refuse("full_attn_layers", "must count layers from 1");
      full[static_cast<size_t>(layer - 1)] = true;
    }
  }
  return read_layer_types(config, layers, full);
}

bool dense_layer(const HfConfig& config, int64_t layer) {
  const std::vector<std::string> types = config.texts("mlp_layer_types");
  if (static_cast<size_t>(layer) < types.size())
    return types[static_cast<size_t>(layer)] == "dense";
  return layer < config.integer("first_k_dense_replace", 1);
}

LayerConfig read_kda(const HfConfig& config, const ModelConfig& model) {
  const LinearKeys keys = read_linear(config);
  if (keys.taps != 4) config.refuse("linear_conv_kernel_dim", "Weft convolves over 4 tokens");
  LayerConfig layer;
  layer.mixer = "kda";
  layer.options.set("heads", keys.heads);
  layer.options.set("dk", keys.width);
  layer.options.set("dv", keys.width);
  layer.options.set("gate_rank", keys.width);
  layer.options.set("norm_eps", model.norm_eps);
  return layer;
}

LayerConfig read_latent(const HfConfig& config) {
  config.only("attention_bias", false);
  config.only("mla_use_nope", true);
  LayerConfig layer;
  layer.mixer = "mla";
  layer.options.set("heads", config.integer("num_attention_heads"));
  layer.options.set("dk", config.integer("qk_nope_head_dim"));
  layer.options.set("dv", config.integer("v_head_dim"));
  layer.options.set("rope_width", config.integer("qk_rope_head_dim"));
  layer.options.set("kv_rank", config.integer("kv_lora_rank"));
  layer.options.set("q_rank", config.integer("q_lora_rank", 0));
  layer.options.set("norm_eps", kLatentEpsilon);
  return layer;
}

void read_moe(const HfConfig& config, ModelConfig& model) {
  read_experts(config, kKimiKeys, model);
  model.moe.router = "sigmoid_bias";
  model.moe.renormalize = config.flag("moe_renormalize", true);
  model.moe.route_scale = config.number("routed_scaling_factor", 1.0);
  model.moe.n_group = config.integer("num_expert_group", 1);
  model.moe.topk_group = config.integer("topk_group", 1);
  model.moe.shared = config.integer("num_shared_experts", 1);
  config.only("moe_router_activation_func", "sigmoid");
}

void map_kda(TensorMap& map, const std::string& weft, const std::string& hf) {
  const int64_t heads = map.shape_of(weft + "A_log")[0];
  for (const char* name : {"q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "f_b_proj",
                           "g_a_proj", "g_b_proj", "o_norm", "o_proj"}) {
    map.whole(weft + name + ".weight", hf + name + ".weight");
  }
  for (const std::string name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    map.whole(weft + name, hf + name, {map.shape_of(weft + name)[0], 1, 4});
  }
  map.whole(weft + "dt_bias", hf + "dt_bias");
  map.whole(weft + "A_log", hf + "A_log", {1, 1, heads, 1});
}

void map_latent(TensorMap& map, const LayerOptions& o, const std::string& weft,
                const std::string& hf) {
  const int64_t heads = o.integer("heads"), dk = o.integer("dk"), dv = o.integer("dv"),
                rope = o.integer("rope_width"), width = dk + rope;
  const bool direct = o.integer("q_rank") == 0;
  const std::string q = direct ? "q_proj.weight" : "q_b_proj.weight";
  const Shape queries = map.shape_of(weft + q);
  for (int64_t h = 0; h < heads; ++h) {
    if (rope > 0)
      map.rows(weft + q, {h * width, rope}, hf + q, queries,
               {.begin = h * width + dk, .run = rope});
    map.rows(weft + q, {h * width + rope, dk}, hf + q, queries, {.begin = h * width, .run = dk});
  }
  if (!direct) {
    map.whole(weft + "q_a_proj.weight", hf + "q_a_proj.weight");
    map.whole(weft + "q_a_norm.weight", hf + "q_a_layernorm.weight");
  }
  map.whole(weft + "kv_a_proj.weight", hf + "kv_a_proj_with_mqa.weight");
  map.whole(weft + "kv_a_norm.weight", hf + "kv_a_layernorm.weight");
  const int64_t rank = o.integer("kv_rank");
  const Shape both{heads * (dk + dv), rank};
  map.rows(weft + "k_b_proj.weight", {0, heads * dk}, hf + "kv_b_proj.weight", both,
           {0, dk, dk + dv, heads});
  map.rows(weft + "v_b_proj.weight", {0, heads * dv}, hf + "kv_b_proj.weight", both,
           {dk, dv, dk + dv, heads});
  map.whole(weft + "o_proj.weight", hf + "o_proj.weight");
}

void map_sparse(TensorMap& map, const std::string& weft, const std::string& hf) {
  map.whole(weft + "router.weight", hf + "gate.weight");
  map.whole(weft + "router.bias", hf + "gate.e_score_correction_bias");
  map_experts(map, weft, hf, numbered_names());
  if (map.has(weft + "shared.w_down")) map_mlp(map, weft + "shared.", hf + "shared_experts.");
}

}  // namespace

ModelConfig read_kimi_linear(const HfConfig& config) {
  ModelConfig model = read_shape(config, "rms_norm_eps", 1e-5);
  model.dense.ffn = config.integer("intermediate_size");
  read_moe(config, model);
  const std::vector<bool> full = read_full_layers(config, model.layers);
  std::vector<LayerConfig> layers;
  for (int64_t i = 0; i < model.layers; ++i) {
    LayerConfig layer =
        full[static_cast<size_t>(i)] ? read_latent(config) : read_kda(config, model);
    layer.ffn = dense_layer(config, i) ? "dense" : "moe";
    layers.push_back(layer);
  }
  set_layers(model, layers);
  return model;
}

std::optional<nlohmann::json> write_kimi_linear(const ModelConfig& model) {
  const LayerConfig* latent = find_layer(model, "mla");
  const LayerConfig* kda = find_layer(model, "kda");
  if (latent == nullptr || kda == nullptr) return std::nullopt;
  const LayerOptions a(model, *latent), k(model, *kda);
  nlohmann::json config;
  write_shape(model, config);
  write_experts(model, kKimiKeys, config);
  config["intermediate_size"] = dense_width(model);
  config["num_attention_heads"] = config["num_key_value_heads"] = a.integer("heads");
  config["qk_nope_head_dim"] = a.integer("dk");
  config["qk_rope_head_dim"] = a.integer("rope_width");
  config["v_head_dim"] = a.integer("dv");
  config["kv_lora_rank"] = a.integer("kv_rank");
  config["q_lora_rank"] = nullptr;
  if (a.integer("q_rank") > 0) config["q_lora_rank"] = a.integer("q_rank");
  config["linear_num_heads"] = k.integer("heads");
  config["linear_head_dim"] = k.integer("dk");
  config["linear_conv_kernel_dim"] = 4;
  config["moe_renormalize"] = model.moe.renormalize;
  config["routed_scaling_factor"] = model.moe.route_scale;
  config["num_expert_group"] = model.moe.n_group;
  config["topk_group"] = model.moe.topk_group;
  config["num_shared_experts"] = model.moe.shared;
  config["layer_types"] = layer_types(model, "mla");
  for (int64_t i = 0; i < model.layers; ++i) {
    config["mlp_layer_types"].push_back(layer_config_of(model, i).ffn == "dense" ? "dense"
                                                                                 : "sparse");
  }
  return config;
}

void map_kimi_linear(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map);
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    const LayerConfig& layer = layer_config_of(model, i);
    map.whole(names.weft + "norm1.weight", names.hf + "input_layernorm.weight");
    map.whole(names.weft + "norm2.weight", names.hf + "post_attention_layernorm.weight");
    if (layer.mixer == "mla") {
      map_latent(map, LayerOptions(model, layer), names.weft + "mixer.", names.hf + "self_attn.");
    } else {
      map_kda(map, names.weft + "mixer.", names.hf + "self_attn.");
    }
    if (layer.ffn == "moe") {
      map_sparse(map, names.weft + "moe.", names.hf + "block_sparse_moe.");
    } else {
      // Published folders use mlp, those written by transformers use block_sparse_moe here too.
      map_mlp(map, names.weft + "mlp.", names.hf + "mlp.");
      for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
        map.also(names.hf + "mlp." + part, names.hf + "block_sparse_moe." + part);
      }
    }
  }
}

}  // namespace weft
