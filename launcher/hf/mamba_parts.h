#pragma once

#include "launcher/hf/parts.h"

namespace weft {

// The config keys of Mamba2, which differ between classes.
struct Mamba2Keys {
  const char *heads, *groups, *state, *expand, *taps, *conv_bias, *bias;
};
// Its norm uses the model's epsilon and covers all channels for any number of groups.
LayerConfig read_mamba2_layer(const HfConfig& config, const Mamba2Keys& keys,
                              const ModelConfig& model);
void map_mamba2(TensorMap& map, const std::string& weft, const std::string& hf);

}  // namespace weft
