#include "launcher/hf/parts.h"

#include <algorithm>

namespace weft {
namespace {

bool equal(const LayerConfig& a, const LayerConfig& b) {
  return a.mixer == b.mixer && a.ffn == b.ffn && a.residual == b.residual &&
         a.ffn_residual == b.ffn_residual && a.residual_norm == b.residual_norm &&
         a.options == b.options;
}

// The shortest pattern whose repetition gives all letters.
std::string shortest(const std::string& letters) {
  for (size_t period = 1; period < letters.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < letters.size() && repeats; ++i) {
      repeats = letters[i] == letters[i - period];
    }
    if (repeats) return letters.substr(0, period);
  }
  return letters;
}

}  // namespace

void set_layers(ModelConfig& model, const std::vector<LayerConfig>& layers) {
  std::string all;
  model.letters.clear();
  for (const LayerConfig& layer : layers) {
    char letter = 0;
    for (const auto& [known, config] : model.letters) {
      if (equal(config, layer)) letter = known;
    }
    if (letter == 0) {
      std::string wanted = layer.mixer == "softmax" ? "N" : "L";
      for (char c = 'A'; c <= 'Z'; ++c) wanted += c;
      for (const char c : wanted) {
        if (letter == 0 && !model.letters.contains(c)) letter = c;
      }
      WEFT_CHECK(letter != 0, "more than {} kinds of layers", model.letters.size());
      model.letters[letter] = layer;
    }
    all += letter;
  }
  model.layers = static_cast<int64_t>(layers.size());
  model.pattern = shortest(all);
}

ModelConfig read_shape(const HfConfig& config, const char* epsilon, double default_epsilon) {
  ModelConfig model;
  model.vocab = config.integer("vocab_size");
  model.hidden = config.integer("hidden_size");
  model.layers = config.integer("num_hidden_layers");
  if (model.layers < 1 || model.layers > 65536) {
    config.refuse("num_hidden_layers", "must be from 1 to 65536");
  }
  if (model.vocab < 1) config.refuse("vocab_size", "must be at least 1");
  if (model.hidden < 1) config.refuse("hidden_size", "must be at least 1");
  model.tie_embeddings = config.flag("tie_word_embeddings", false);
  model.norm_eps = config.number(epsilon, default_epsilon);
  config.only("hidden_act", "silu");
  return model;
}

void write_shape(const ModelConfig& model, nlohmann::json& config, const char* epsilon) {
  config["vocab_size"] = model.vocab;
  config["hidden_size"] = model.hidden;
  config["num_hidden_layers"] = model.layers;
  config["tie_word_embeddings"] = model.tie_embeddings;
  config[epsilon] = model.norm_eps;
  config["hidden_act"] = "silu";
}

LayerConfig read_attention(const HfConfig& config, const ModelConfig& model) {
  const int64_t heads = config.integer("num_attention_heads");
  if (heads < 1) config.refuse("num_attention_heads", "must be at least 1");
  const int64_t width = config.integer("head_dim", model.hidden / heads);
  LayerConfig layer;
  layer.mixer = "softmax";
  layer.ffn = "dense";
  layer.options.set("heads", heads);
  layer.options.set("kv_heads", config.integer("num_key_value_heads", heads));
  layer.options.set("dk", width);
  layer.options.set("dv", width);
  return layer;
}

void write_attention(const LayerOptions& a, nlohmann::json& config) {
  config["num_attention_heads"] = a.integer("heads");
  config["num_key_value_heads"] = a.integer("kv_heads");
  config["head_dim"] = a.integer("dk");
  if (a.flag("rope")) write_rotation(a, config);
}

nlohmann::json window_or_null(const LayerOptions& attention) {
  const int64_t window = attention.integer("window");
  return window > 0 ? nlohmann::json(window) : nlohmann::json(nullptr);
}

const LayerConfig* find_layer(const ModelConfig& model, const std::string& mixer,
                              const std::string& ffn) {
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerConfig& layer = layer_config_of(model, i);
    if ((mixer.empty() || layer.mixer == mixer) && (ffn.empty() || layer.ffn == ffn)) return &layer;
  }
  return nullptr;
}

LayerNames layer_names(int64_t layer, const std::string& hf_prefix) {
  return {fmt::format("block.{}.", layer), fmt::format("{}{}.", hf_prefix, layer)};
}

void map_outer(const ModelConfig& model, TensorMap& map, const OuterNames& names) {
  map.whole("embed.weight", names.embed);
  map.whole("norm.weight", names.norm);
  if (model.tie_embeddings) {
    map.ignored(names.head);
  } else {
    map.whole("head.weight", names.head);
  }
}

void map_attention(TensorMap& map, const std::string& weft, const std::string& hf) {
  for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    for (const char* kind : {".weight", ".bias"}) {
      if (map.has(weft + part + kind)) map.whole(weft + part + kind, hf + part + kind);
    }
  }
  for (const char* norm : {"q_norm.weight", "k_norm.weight"}) {
    if (map.has(weft + norm)) map.whole(weft + norm, hf + norm);
  }
}

void map_mlp(TensorMap& map, const std::string& weft, const std::string& hf,
             const MlpNames& names) {
  const Shape both = map.shape_of(weft + "w_gate_up");
  const int64_t width = both[0] / 2;
  const RowRuns all{.run = width};
  map.rows(weft + "w_gate_up", {0, width}, hf + names.gate, {width, both[1]}, all);
  map.rows(weft + "w_gate_up", {width, width}, hf + names.up, {width, both[1]}, all);
  map.whole(weft + "w_down", hf + names.down);
}

void map_experts(TensorMap& map, const std::string& weft, const std::string& hf,
                 const MlpNames& names) {
  const Shape both = map.shape_of(weft + "experts.w_gate_up");
  const int64_t width = both[1] / 2;
  for (int64_t e = 0; e < both[0]; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", hf, e);
    map.expert(weft + "experts.w_gate_up", e, 0, width, expert + names.gate);
    map.expert(weft + "experts.w_gate_up", e, width, width, expert + names.up);
    map.expert(weft + "experts.w_down", e, 0, both[2], expert + names.down);
  }
}

void map_llama_layer(TensorMap& map, const LayerNames& names) {
  map.whole(names.weft + "norm1.weight", names.hf + "input_layernorm.weight");
  map.whole(names.weft + "norm2.weight", names.hf + "post_attention_layernorm.weight");
  map_attention(map, names.weft + "mixer.", names.hf + "self_attn.");
}

void map_llama_like(const ModelConfig& model, TensorMap& map) {
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

ModelConfig read_llama_like(const HfConfig& config, LayerConfig& layer) {
  ModelConfig model = read_shape(config);
  model.dense.ffn = config.integer("intermediate_size");
  layer = read_attention(config, model);
  read_rotation(config, layer);
  return model;
}

std::optional<nlohmann::json> write_llama_like(const ModelConfig& model) {
  const LayerConfig* layer = find_layer(model, "softmax", "dense");
  if (layer == nullptr) return std::nullopt;
  nlohmann::json config;
  write_shape(model, config);
  write_attention(LayerOptions(model, *layer), config);
  config["intermediate_size"] = dense_width(model);
  return config;
}

ModelConfig read_qwen_moe(const HfConfig& config, LayerConfig& layer) {
  ModelConfig model = read_llama_like(config, layer);
  read_experts(config, {}, model);
  model.moe.renormalize = config.flag("norm_topk_prob", false);
  config.only("use_sliding_window", false);
  return model;
}

void set_qwen_layers(const HfConfig& config, const LayerConfig& layer, ModelConfig& model) {
  std::vector<LayerConfig> layers(static_cast<size_t>(model.layers), layer);
  for (int64_t i = 0; i < model.layers; ++i) {
    layers[static_cast<size_t>(i)].ffn = sparse_layer(config, i) ? "moe" : "dense";
  }
  set_layers(model, layers);
}

std::optional<nlohmann::json> write_qwen_moe(const ModelConfig& model) {
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

void map_qwen_experts(TensorMap& map, const std::string& weft, const std::string& hf) {
  map.whole(weft + "router.weight", hf + "gate.weight");
  map_experts(map, weft, hf);
  if (!map.has(weft + "shared.w_down")) return;
  map_mlp(map, weft + "shared.", hf + "shared_expert.");
  map.whole(weft + "shared_gate.weight", hf + "shared_expert_gate.weight");
}

void read_experts(const HfConfig& config, const ExpertKeys& keys, ModelConfig& model) {
  // Folders use either of two names for the number of experts.
  const char* other = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  model.moe.experts = config.integer(config.has(keys.experts) ? keys.experts : other);
  model.moe.active = config.integer(keys.active);
  model.moe.ffn = config.integer(keys.ffn);
  if (model.moe.experts < 1) config.refuse(keys.experts, "must be at least 1");
  if (model.moe.active < 1 || model.moe.active > model.moe.experts) {
    config.refuse(keys.active,
                  fmt::format("must be from 1 to {} = {}", keys.experts, model.moe.experts));
  }
  if (model.moe.ffn < 1) config.refuse(keys.ffn, "must be at least 1");
  model.moe.aux_loss = config.number("router_aux_loss_coef", 0.0);
}

void write_experts(const ModelConfig& model, const ExpertKeys& keys, nlohmann::json& config) {
  config[keys.experts] = model.moe.experts;
  config[keys.active] = model.moe.active;
  config[keys.ffn] = model.moe.ffn;
  config["router_aux_loss_coef"] = model.moe.aux_loss;
}

nlohmann::json layer_types(const ModelConfig& model, const std::string& full) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t i = 0; i < model.layers; ++i) {
    const bool attends = layer_config_of(model, i).mixer == full;
    list.push_back(attends ? "full_attention" : "linear_attention");
  }
  return list;
}

std::vector<bool> read_layer_types(const HfConfig& config, int64_t layers,
                                   const std::vector<bool>& otherwise) {
  for (const char* key : {"layer_types", "layers_block_type"}) {
    if (!config.has(key)) continue;
    std::vector<bool> out;
    for (const std::string& type : config.texts(key)) {
      const bool full = type == "full_attention" || type == "attention";
      if (!full && type != "linear_attention" && type != "mamba") {
        config.refuse(key, "must hold \"full_attention\" and \"linear_attention\" alone");
      }
      out.push_back(full);
    }
    if (static_cast<int64_t>(out.size()) != layers) {
      config.refuse(key, fmt::format("must have num_hidden_layers = {} entries", layers));
    }
    return out;
  }
  return otherwise;
}

nlohmann::json dense_layers(const ModelConfig& model) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t i = 0; i < model.layers; ++i) {
    if (layer_config_of(model, i).ffn == "dense") list.push_back(i);
  }
  return list;
}

bool sparse_layer(const HfConfig& config, int64_t layer) {
  const std::vector<int64_t> dense = config.integers("mlp_only_layers");
  if (std::find(dense.begin(), dense.end(), layer) != dense.end()) return false;
  const int64_t step = config.integer("decoder_sparse_step", 1);
  if (step < 1) config.refuse("decoder_sparse_step", "must be at least 1");
  return (layer + 1) % step == 0;
}

}  // namespace weft
