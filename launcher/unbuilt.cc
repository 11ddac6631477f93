#include "launcher/unbuilt.h"

#include "core/cuda_driver.h"
#include "core/error.h"

namespace weft {

namespace {

// The nearest reason first: what this machine lacks, then what this version does.
void refuse_cuda(const Config& config) {
  const CudaDriver driver = find_cuda_driver();
  const std::string where = config.where("run.device");
  if (!driver.why_not.empty()) {
    throw ConfigError("{}: run.device = \"cuda\": {}; what works here: \"auto\" or \"cpu\"", where,
                      driver.why_not);
  }
  throw ConfigError(
      "{}: run.device = \"cuda\": {} GPUs are here, but this version does not train on them yet; "
      "what works: \"auto\" or \"cpu\"",
      where, driver.devices);
}

}  // namespace

void refuse_unbuilt(const Config& config) {
  if (config.run.device == "cuda") refuse_cuda(config);
  const Config d;  // defaults
  const ParallelConfig& p = config.parallel;
  struct Rule {
    const char* key;
    bool set;
    const char* instead;
  };
  const Rule rules[] = {
      {"parallel.pipe", p.pipe > 1, "1"},
      {"parallel.schedule", p.schedule != d.parallel.schedule, "\"1f1b\""},
      {"parallel.virtual_stages", p.virtual_stages > 1, "1"},
  };
  for (const Rule& rule : rules) {
    if (!rule.set) continue;
    throw ConfigError("{}: {}: this version does not have that yet; what works: {}",
                      config.where(rule.key), rule.key, rule.instead);
  }
}

}  // namespace weft
