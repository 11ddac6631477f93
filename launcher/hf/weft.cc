// Weft's own class, for models that fit no other: config.json contains the [model] table of Weft's
// config as text under "weft_model", and tensors keep Weft's names. Importing the folder gives
// exactly the model again.
#include "launcher/hf/parts.h"

namespace weft {

ModelConfig read_weft(const HfConfig& config) {
  const std::string text = config.text("weft_model", "");
  if (text.empty()) config.refuse("weft_model", "must hold the [model] table of a Weft config");
  return config_from_text(text, config.path() + ": weft_model").model;
}

std::optional<nlohmann::json> write_weft(const ModelConfig& original) {
  ModelConfig model = original;
  nlohmann::json config;
  config["weft_model"] =
      print_toml(write_fields([&](FieldVisitor& f) { f.table("model", model, "the network"); }));
  config["vocab_size"] = model.vocab;
  config["hidden_size"] = model.hidden;
  config["num_hidden_layers"] = model.layers;
  config["tie_word_embeddings"] = model.tie_embeddings;
  return config;
}

void map_weft(const ModelConfig&, TensorMap& map) {
  for (const std::string& name : map.weights()) map.whole(name, name);
}

}  // namespace weft
