#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/context/mixer.h"

namespace weft {

struct MixerInfo {
  std::string name;
  std::string sentence;
  std::vector<FieldInfo> options;
};

// Every line of mixers.def, in its order.
std::vector<MixerInfo> mixer_list();

// What a user should know of a mixer with these options before training starts; empty: nothing.
std::string remark_on(const std::string& name, const OptionTable& options);

// Builds the mixer called `name` from its options. Refuses an unknown name with the nearest known
// one.
std::unique_ptr<Mixer> make_mixer(const std::string& name, const MixerBuild& build);

}  // namespace weft
