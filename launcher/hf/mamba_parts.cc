#include "launcher/hf/mamba_parts.h"

namespace weft {

LayerConfig read_mamba2_layer(const HfConfig& config, const Mamba2Keys& keys,
                              const ModelConfig& model) {
  LayerConfig layer;
  layer.mixer = "mamba2";
  layer.options.set("heads", config.integer(keys.heads));
  layer.options.set("groups", config.integer(keys.groups));
  layer.options.set("state", config.integer(keys.state));
  layer.options.set("inner", config.integer(keys.expand, 2) * model.hidden);
  layer.options.set("norm_groups", int64_t{1});
  layer.options.set("norm_eps", model.norm_eps);
  config.only(keys.taps, 4);
  config.only(keys.conv_bias, true);
  config.only(keys.bias, false);
  if (config.has("time_step_limit")) {
    // [0, infinity], which files write in several ways: finite bounds are refused.
    const nlohmann::json& limit = config.json()["time_step_limit"];
    const bool free =
        limit.is_array() && limit.size() == 2 && limit[0] == 0.0 && !limit[1].is_number();
    if (!free)
      config.refuse("time_step_limit", "Weft does not bound time steps; supported: [0, Infinity]");
  }
  return layer;
}

void map_mamba2(TensorMap& map, const std::string& weft, const std::string& hf) {
  const int64_t channels = map.shape_of(weft + "conv1d.weight")[0];
  map.whole(weft + "conv1d.weight", hf + "conv1d.weight", {channels, 1, 4});
  for (const char* name : {"in_proj.weight", "conv1d.bias", "A_log", "dt_bias", "D", "norm.weight",
                           "out_proj.weight"}) {
    map.whole(weft + name, hf + name);
  }
}

}  // namespace weft
