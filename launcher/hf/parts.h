#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "launcher/hf/family.h"
#include "launcher/hf/layer_options.h"

// Building blocks shared by the classes of launcher/hf/families.def.
namespace weft {

// Gives every layer its letter; equal layers share one. N stands for softmax attention, L for the
// first other mixer.
void set_layers(ModelConfig& model, const std::vector<LayerConfig>& layers);

// vocab, hidden, layers, tied embeddings, epsilon: the keys of nearly all classes.
ModelConfig read_shape(const HfConfig& config, const char* epsilon = "rms_norm_eps",
                       double default_epsilon = 1e-6);
void write_shape(const ModelConfig& model, nlohmann::json& config,
                 const char* epsilon = "rms_norm_eps");

// Heads, widths and rotation of softmax attention.
LayerConfig read_attention(const HfConfig& config, const ModelConfig& model);
// Rotation of all channels of a head, or of a share partial_rotary_factor (default: a quarter).
enum class RotatedShare : uint8_t { kAll, kQuarter };
void read_rotation(const HfConfig& config, LayerConfig& attention,
                   RotatedShare rotated = RotatedShare::kAll);
void write_rotation(const LayerOptions& attention, nlohmann::json& config);
void write_attention(const LayerOptions& attention, nlohmann::json& config);
// The length of the sliding window; null without one.
nlohmann::json window_or_null(const LayerOptions& attention);

// The first layer with that mixer (any when empty) and that feed-forward; null when there is none.
const LayerConfig* find_layer(const ModelConfig& model, const std::string& mixer,
                              const std::string& ffn = "");

// "block.3." and "model.layers.3.": the names of one layer on both sides.
struct LayerNames {
  std::string weft, hf;
};
LayerNames layer_names(int64_t layer, const std::string& hf_prefix = "model.layers.");

// Embedding, final norm and head.
struct OuterNames {
  std::string embed = "model.embed_tokens.weight", norm = "model.norm.weight",
              head = "lm_head.weight";
};
void map_outer(const ModelConfig& model, TensorMap& map, const OuterNames& names = {});

// q, k, v, o with the biases and QK-norms of the mixer; `hf` ends in a dot.
void map_attention(TensorMap& map, const std::string& weft, const std::string& hf);
// Gate, up and down of a dense feed-forward or a shared expert.
struct MlpNames {
  std::string gate = "gate_proj.weight", up = "up_proj.weight", down = "down_proj.weight";
};
void map_mlp(TensorMap& map, const std::string& weft, const std::string& hf,
             const MlpNames& names = {});
// Experts, one by one: hf + "experts.E." + name.
void map_experts(TensorMap& map, const std::string& weft, const std::string& hf,
                 const MlpNames& names = {});
inline MlpNames numbered_names() { return {"w1.weight", "w3.weight", "w2.weight"}; }

// The norms of a layer and its softmax attention, named as in llama and its descendants.
void map_llama_layer(TensorMap& map, const LayerNames& names);
// A whole model of such layers with dense feed-forwards, or experts as in qwen2_moe.
void map_llama_like(const ModelConfig& model, TensorMap& map);
// Softmax attention and a dense feed-forward in every layer, for llama and mistral. Writing
// requires a model with such a layer.
ModelConfig read_llama_like(const HfConfig& config, LayerConfig& layer);
std::optional<nlohmann::json> write_llama_like(const ModelConfig& model);
// Softmax attention, experts in some layers, for the Qwen-MoE classes.
ModelConfig read_qwen_moe(const HfConfig& config, LayerConfig& layer);
void set_qwen_layers(const HfConfig& config, const LayerConfig& layer, ModelConfig& model);
std::optional<nlohmann::json> write_qwen_moe(const ModelConfig& model);
// Router, experts and the optional shared expert with its gate, named as in qwen2_moe.
void map_qwen_experts(TensorMap& map, const std::string& weft, const std::string& hf);

// Experts under the usual keys; `experts` and `ffn` name the keys that differ.
struct ExpertKeys {
  const char* experts = "num_experts";
  const char* active = "num_experts_per_tok";
  const char* ffn = "moe_intermediate_size";
};
void read_experts(const HfConfig& config, const ExpertKeys& keys, ModelConfig& model);
void write_experts(const ModelConfig& model, const ExpertKeys& keys, nlohmann::json& config);

// "full_attention" for layers of that mixer, "linear_attention" for the others.
nlohmann::json layer_types(const ModelConfig& model, const std::string& full);
// Layers with full attention, by layer_types; `otherwise` if the key is missing.
std::vector<bool> read_layer_types(const HfConfig& config, int64_t layers,
                                   const std::vector<bool>& otherwise);

// The layers without experts, as mlp_only_layers for decoder_sparse_step = 1.
nlohmann::json dense_layers(const ModelConfig& model);
// True for layers with experts, by decoder_sparse_step and mlp_only_layers.
bool sparse_layer(const HfConfig& config, int64_t layer);

}  // namespace weft
