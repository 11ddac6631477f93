#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/mixers/mixer.h"

namespace weft {

struct MixerInfo {
  std::string name;
  std::string sentence;
  std::vector<FieldInfo> options;
};

// Every line of mixers.def, in its order.
std::vector<MixerInfo> mixer_list();

// Builds the mixer called `name` from its options. Refuses an unknown name with the nearest known one.
std::unique_ptr<Mixer> make_mixer(const std::string& name, const MixerBuild& build);

}  // namespace weft
