// Jamba: Mamba with inner norms, some softmax layers without rotation, and experts in every other
// feed-forward.
#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr ExpertKeys kJambaKeys{.ffn = "intermediate_size"};

struct Every {
  int64_t period, offset;
  bool holds(int64_t layer) const { return layer % period == offset; }
};
Every read_every(const HfConfig& config, const std::string& what, const Every& otherwise) {
  const Every every{config.integer(what + "_layer_period", otherwise.period),
                    config.integer(what + "_layer_offset", otherwise.offset)};
  if (every.period < 1) config.refuse(what + "_layer_period", "must be at least 1");
  return every;
}

LayerConfig read_mamba_layer(const HfConfig& config, const ModelConfig& model) {
  LayerConfig layer;
  layer.mixer = "mamba";
  layer.options.set("state", config.integer("mamba_d_state", 16));
  layer.options.set("inner", config.integer("mamba_expand", 2) * model.hidden);
  const bool automatic = config.has("mamba_dt_rank") && config.json()["mamba_dt_rank"] == "auto";
  const int64_t sixteenth = (model.hidden + 15) / 16;
  layer.options.set("dt_rank", automatic ? sixteenth : config.integer("mamba_dt_rank", sixteenth));
  layer.options.set("select_norm", true);
  layer.options.set("norm_eps", model.norm_eps);
  config.only("mamba_d_conv", 4);
  config.only("mamba_conv_bias", true);
  config.only("mamba_proj_bias", false);
  return layer;
}

// The first layer of that mixer or feed-forward and the distance to the next.
std::optional<Every> every_of(const ModelConfig& model, bool (*is)(const LayerConfig&)) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < model.layers; ++i) {
    if (is(layer_config_of(model, i))) layers.push_back(i);
  }
  if (layers.empty()) return std::nullopt;
  if (layers.size() == 1) return Every{model.layers, layers[0]};
  return Every{layers[1] - layers[0], layers[0]};
}

}  // namespace

ModelConfig read_jamba(const HfConfig& config) {
  ModelConfig model = read_shape(config);
  read_experts(config, kJambaKeys, model);
  model.dense.ffn = model.moe.ffn;
  const Every attention = read_every(config, "attn", {8, 4}),
              experts = read_every(config, "expert", {2, 1});
  LayerConfig softmax = read_attention(config, model);
  softmax.options.set("rope", false);
  const LayerConfig mamba = read_mamba_layer(config, model);
  std::vector<LayerConfig> layers;
  for (int64_t i = 0; i < model.layers; ++i) {
    LayerConfig layer = attention.holds(i) ? softmax : mamba;
    layer.ffn = experts.holds(i) && model.moe.experts > 1 ? "moe" : "dense";
    layers.push_back(layer);
  }
  set_layers(model, layers);
  return model;
}

std::optional<nlohmann::json> write_jamba(const ModelConfig& model) {
  const LayerConfig* mamba = find_layer(model, "mamba");
  const LayerConfig* softmax = find_layer(model, "softmax");
  const auto attention = every_of(model, [](const LayerConfig& l) { return l.mixer == "softmax"; });
  const auto experts = every_of(model, [](const LayerConfig& l) { return l.ffn == "moe"; });
  if (mamba == nullptr || softmax == nullptr || !attention || !experts) return std::nullopt;
  const LayerOptions m(model, *mamba);
  if (m.integer("inner") % model.hidden != 0) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *softmax), config);
  config.erase("head_dim");
  write_experts(model, kJambaKeys, config);
  config["attn_layer_period"] = attention->period;
  config["attn_layer_offset"] = attention->offset;
  config["expert_layer_period"] = experts->period;
  config["expert_layer_offset"] = experts->offset;
  config["mamba_d_state"] = m.integer("state");
  config["mamba_expand"] = m.integer("inner") / model.hidden;
  config["mamba_dt_rank"] = m.integer("dt_rank");
  config["mamba_d_conv"] = 4;
  return config;
}

void map_jamba(const ModelConfig& model, TensorMap& map) {
  map_outer(model, map, {.norm = "model.final_layernorm.weight"});
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerNames names = layer_names(i);
    const LayerConfig& layer = layer_config_of(model, i);
    const std::string mixer = names.weft + "mixer.", mamba = names.hf + "mamba.",
                      ffn = names.hf + "feed_forward.";
    map.whole(names.weft + "norm1.weight", names.hf + "input_layernorm.weight");
    map.whole(names.weft + "norm2.weight", names.hf + "pre_ff_layernorm.weight");
    if (layer.mixer == "softmax") {
      map_attention(map, mixer, names.hf + "self_attn.");
    } else {
      const int64_t channels = map.shape_of(mixer + "conv1d.weight")[0];
      map.whole(mixer + "conv1d.weight", mamba + "conv1d.weight", {channels, 1, 4});
      for (const char* name : {"in_proj.weight", "conv1d.bias", "x_proj.weight", "dt_proj.weight",
                               "dt_proj.bias", "A_log", "D", "out_proj.weight"}) {
        map.whole(mixer + name, mamba + name);
      }
      map.whole(mixer + "dt_norm.weight", mamba + "dt_layernorm.weight");
      map.whole(mixer + "b_norm.weight", mamba + "b_layernorm.weight");
      map.whole(mixer + "c_norm.weight", mamba + "c_layernorm.weight");
    }
    if (layer.ffn == "moe") {
      map.whole(names.weft + "moe.router.weight", ffn + "router.weight");
      map_experts(map, names.weft + "moe.", ffn);
    } else {
      map_mlp(map, names.weft + "mlp.", ffn);
    }
  }
}

}  // namespace weft
