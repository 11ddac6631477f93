#pragma once

#include "launcher/hf/parts.h"

namespace weft {

// Mamba2 under the names of its classes.
struct Mamba2Keys {
  const char *heads, *groups, *state, *expand, *taps, *conv_bias, *bias;
};
// The epsilon of its norm is the model's; the norm is over all channels whatever the groups.
LayerConfig read_mamba2_layer(const HfConfig& config, const Mamba2Keys& keys,
                              const ModelConfig& model);
void map_mamba2(TensorMap& map, const std::string& weft, const std::string& hf);

}  // namespace weft
