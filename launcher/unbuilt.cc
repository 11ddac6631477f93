#include "launcher/unbuilt.h"

#include "core/error.h"

namespace weft {

void refuse_unbuilt(const Config& config) {
  const Config d;  // defaults
  const auto& [m, data, train, optimizer, p, r, places] = config;
  struct Rule {
    const char* key;
    bool set;
    const char* instead;
  };
  const Rule rules[] = {
      {"parallel.tensor", p.tensor > 1, "1"},
      {"parallel.pipe", p.pipe > 1, "1"},
      {"model.moe.capacity", p.sequence > 1 && m.moe.capacity > 0, "0 with sequence ranks"},
      {"parallel.expert", p.expert > 1, "1"},
      {"parallel.expert_tensor", p.expert_tensor > 1, "1"},
      {"parallel.schedule", p.schedule != d.parallel.schedule, "\"1f1b\""},
      {"parallel.virtual_stages", p.virtual_stages > 1, "1"},
      {"run.device", r.device == "cuda", "\"auto\" or \"cpu\""},
  };
  for (const Rule& rule : rules) {
    if (!rule.set) continue;
    throw ConfigError("{}: {}: this version does not have that yet; what works: {}",
                      config.where(rule.key), rule.key, rule.instead);
  }
}

}  // namespace weft
