#pragma once

#include <functional>
#include <string>

#include "core/config/run_config.h"
#include "core/parameter.h"

namespace weft {

// What the layers of a model have to say of a place, which only they know (kv heads, groups,
// channels): why they cannot be cut that way, or nothing.
using PlaceRule = std::function<std::string(const Coordinates& here)>;

// The rules between a config and a number of ranks: the product of the degrees, whole heads,
// experts, layers, tokens and micro-batches per rank. Throws ConfigError that shows the whole
// product, the rule that is broken, and the nearest layouts of as many ranks that keep all rules,
// those of `model` too where it is given.
void check_layout(const Config& config, int world, const PlaceRule& model = {});

}  // namespace weft
