#pragma once

// The list of mixers, from wherever this build has it.
#if __has_include("layers/mixers/registry.h")
#include "layers/mixers/registry.h"
#else
#include <string>
#include <vector>

namespace weft {

struct OptionInfo {
  std::string name, type, default_value, doc;
};
struct MixerInfo {
  std::string name, sentence;
  std::vector<OptionInfo> options;
};
inline std::vector<MixerInfo> mixer_list() { return {}; }

}  // namespace weft
#endif
