#pragma once

#include <cmath>

#include "layers/context/build.h"

namespace weft {

// How the vectors of RWKV-6 start: functions of the channel and the layer's depth, as published.
struct Rwkv6Start {
  double depth;  // 0 in the first layer, 1 in the last
  double rest;   // 1 in the first layer, 1 / layers in the last
  int64_t hidden;

  explicit Rwkv6Start(const Build& build)
      : depth(build.layers > 1 ? ratio(build.layer, build.layers - 1) : 0.0),
        rest(1.0 - ratio(build.layer, build.layers)),
        hidden(build.hidden) {}

  // Shares of the token before: 1 - (n / hidden)^(power * rest), less `off` of the depth.
  double mix(int64_t n, double power, double off = 0.0) const {
    return 1.0 - std::pow(ratio(n, hidden), power * rest) - off * depth;
  }
  // One vector or several, `channels` long each: a ramp, steeper in later layers.
  Init decay(int64_t channels) const {
    return Init::each([*this, channels](int64_t n) {
      return -6.0 + 5.0 * std::pow(along(n % channels, channels), 0.7 + 1.3 * depth);
    });
  }
  // A ramp, and a zigzag of period three on top of it.
  Init bonus(int64_t channels) const {
    return Init::each([*this, channels](int64_t n) {
      return depth * (1.0 - along(n, channels)) + 0.1 * static_cast<double>((n + 1) % 3 - 1);
    });
  }

 private:
  static double ratio(int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  }
  static double along(int64_t n, int64_t channels) {
    return channels > 1 ? ratio(n, channels - 1) : 0.0;
  }
};

}  // namespace weft
