#include "launcher/app/unsupported.h"

#include "core/base/error.h"
#include "core/gpu/cuda_driver.h"

namespace weft {

namespace {

// The most specific reason first: missing on this machine, then missing in this version.
void refuse_cuda(const Config& config) {
  const CudaDriver driver = find_cuda_driver();
  const std::string where = config.where("run.device");
  if (!driver.why_not.empty()) {
    throw ConfigError("{}: run.device = \"cuda\": {}; nearest: \"auto\" or \"cpu\"", where,
                      driver.why_not);
  }
  throw ConfigError(
      "{}: run.device = \"cuda\": {} GPUs found, but this version does not train on them yet; "
      "nearest: \"auto\" or \"cpu\"",
      where, driver.devices);
}

}  // namespace

void refuse_unbuilt(const Config& config) {
  if (config.run.device == "cuda") refuse_cuda(config);
}

}  // namespace weft
