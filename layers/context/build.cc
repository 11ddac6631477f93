#include "layers/context/build.h"

namespace weft {

Parameter& Build::declare(ParameterSpec local) const {
  for (Split& split : local.splits) {
    if (split.axis != Axis::kTensor) continue;
    local.global[split.dim] = whole(local.global[split.dim], split.replicas);
    for (int64_t& block : split.blocks) block = whole(block, split.replicas);
  }
  return store.declare(std::move(local));
}

}  // namespace weft
