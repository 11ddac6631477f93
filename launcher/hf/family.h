#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "launcher/hf/hf_config.h"
#include "launcher/hf/tensor_map.h"

namespace weft {

// One class of published models: launcher/hf/families.def lists them; each has its own file with
// these three functions.
struct Family {
  const char* name;        // config.json's model_type
  const char* class_name;  // config.json's architectures
  const char* sentence;
  // The model that a config.json describes. ConfigError for unsupported variants.
  ModelConfig (*read)(const HfConfig& config);
  // The config.json of such a model; empty for models of another kind. The check may be loose: a
  // model is of this class if reading the result gives the model again.
  std::optional<nlohmann::json> (*write)(const ModelConfig& model);
  void (*map)(const ModelConfig& model, TensorMap& map);
};

const std::vector<Family>& families();

// The class by model_type; otherwise ConfigError with the nearest one.
const Family& family_of(const HfConfig& config);

// The class whose config.json represents this model completely, "weft" if there is none.
struct Exported {
  const Family* family;
  nlohmann::json config;
  std::string text = {};  // the imported config.json if it still describes the model
};
Exported family_for(const ModelConfig& model);

// True if two models compute the same function of the same weights, even if their configs differ.
// Losses, capacities and implementations are not compared.
bool same_model(const ModelConfig& a, const ModelConfig& b);

// Properties of a model by key, with defaults filled in: for messages and comparisons.
std::map<std::string, std::string> model_facts(const ModelConfig& model);

}  // namespace weft
