#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "launcher/hf/hf_config.h"
#include "launcher/hf/tensor_map.h"

namespace weft {

// One class of published models: launcher/hf/families.def lists them, each has a file of its own
// with these three functions.
struct Family {
  const char* name;        // config.json's model_type
  const char* class_name;  // config.json's architectures
  const char* sentence;
  // The model that a config.json describes. ConfigError for variants that Weft has no part for.
  ModelConfig (*read)(const HfConfig& config);
  // What the config.json of such a model would say; nothing for models that are none. It need not
  // look closely: a model is of this class when reading the answer gives the model again.
  std::optional<nlohmann::json> (*write)(const ModelConfig& model);
  void (*map)(const ModelConfig& model, TensorMap& map);
};

const std::vector<Family>& families();

// By model_type; ConfigError with the nearest one.
const Family& family_of(const HfConfig& config);

// The class whose config.json says all of this model, "weft" when there is none.
struct Exported {
  const Family* family;
  nlohmann::json config;
  std::string text = {};  // of the config.json it came with, where it is still that one
};
Exported family_for(const ModelConfig& model);

// Whether two models compute the same from the same weights, however their configs say it. Losses,
// capacities and ways to compute do not count.
bool same_model(const ModelConfig& a, const ModelConfig& b);

// What makes the model what it is, key by key, defaults filled in: for messages and comparisons.
std::map<std::string, std::string> model_facts(const ModelConfig& model);

}  // namespace weft
