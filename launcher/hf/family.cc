#include "launcher/hf/family.h"

#include "core/base/nearest.h"

namespace weft {

#define WEFT_FAMILY(name, class_name, sentence)                         \
  ModelConfig read_##name(const HfConfig& config);                      \
  std::optional<nlohmann::json> write_##name(const ModelConfig& model); \
  void map_##name(const ModelConfig& model, TensorMap& map);
#include "launcher/hf/families.def"
#undef WEFT_FAMILY

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
#define WEFT_FAMILY(name, class_name, sentence) \
  {#name, class_name, sentence, read_##name, write_##name, map_##name},
#include "launcher/hf/families.def"
#undef WEFT_FAMILY
  };
  return all;
}

const Family& family_of(const HfConfig& config) {
  const std::string name = config.text("model_type", "");
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (name == family.name) return family;
    names.emplace_back(family.name);
  }
  throw ConfigError("{}: model_type = \"{}\" is not supported; {}", config.path(), name,
                    nearest_or_all(name, names));
}

Exported family_for(const ModelConfig& model) {
  for (const Family& family : families()) {
    std::optional<nlohmann::json> config = family.write(model);
    if (!config) continue;
    (*config)["model_type"] = family.name;
    (*config)["architectures"] = {family.class_name};
    try {
      if (same_model(family.read(HfConfig(*config, family.name)), model))
        return {&family, *config, ""};
    } catch (const ConfigError&) {  // the model does not fit this class
    }
  }
  WEFT_CHECK(false, "no class for a model, not even weft");
}

}  // namespace weft
