#pragma once

#include "layers/mixers/mixer.h"

namespace weft {

// Refuses an option that needs all heads at once where the heads are cut over tensor ranks.
inline void needs_all_heads(const MixerBuild& build, std::string_view key) {
  const int64_t size = build.store.here()[Axis::kTensor].size;
  if (size == 1) return;
  throw ConfigError(
      "{}: reads all heads at once, and parallel.tensor = {} cuts them over ranks; what works: "
      "parallel.tensor = 1",
      place_of(build.options, key), size);
}

}  // namespace weft
