#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/bench/mixer_rig.h"

namespace weft {

// The baseline of a mixer: another mixer, or the same one under another setting.
struct Versus {
  std::string name;
  std::unique_ptr<MixerRig> rig;
  ChunkStates states = ChunkStates::kKept;
};

// Forward and backward of both at every length, in turns A-B-B-A: `lengths` with `core` and `layer`
// (time of the other over ours: above 1 ours is faster), the bytes that each saves for backward and
// the share that ours prunes, `from`, `layer_from`, and the machine's peaks before and after.
struct Comparison {
  const MixerRig& ours;
  const Versus& other;
  int pairs;
};
nlohmann::json compare(const Comparison& c, const std::vector<MixerInputs>& inputs,
                       PeakProbes& probes);

// The first length from which every ratio is above 1; null: none.
nlohmann::json faster_from(const std::vector<std::pair<int64_t, double>>& ratios);

}  // namespace weft
