#pragma once

#include <algorithm>
#include <cmath>

#include "layers/context/build.h"

namespace weft {

// How the weights of RWKV-7 start: functions of the channel n of D, its place in a head of width d,
// and the layer's depth. The channels of the heads of a mixture's memories may be others than D.
// Two public codes agree on all vectors, on zeros for the first matrices of the projections of low
// rank and for o_proj, and on orthogonal ones for the second. Where they do not, these are the
// choices of flash-linear-attention's RWKV7Attention: orthogonal r_proj, k_proj (times 0.1) and
// v_proj, where RWKV-LM (RWKV-v7/train_temp) has them uniform; ranks of 2.5, 2.5, 1.7 and 5
// sqrt(D), where that has 1.8, 1.8, 1.3 sqrt(D) and 0.6 D^0.8 (options set others); and an epsilon
// of d 1e-5 in the norm of heads, which is 64e-5 there for its d of 64.
struct Rwkv7Start {
  int64_t hidden, channels, width;
  double depth;  // 0 in the first layer, 1 in the last
  double rest;   // 1 in the first layer, 1 / layers in the last
  double level;  // 1 / layers in the first layer, 1 in the last

  Rwkv7Start(const Build& build, int64_t heads, int64_t width)
      : hidden(build.hidden),
        channels(heads * width),
        width(width),
        depth(build.layers > 1 ? ratio(build.layer, build.layers - 1) : 0.0),
        rest(1.0 - ratio(build.layer, build.layers)),
        level(ratio(build.layer + 1, build.layers)) {}

  static double ratio(int64_t a, int64_t b) {
    return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(b, 1));
  }

  Init mix(double power) const {
    return Init::each([power = power * rest, hidden = hidden](int64_t n) {
      return 1.0 - std::pow(ratio(n, hidden), power);
    });
  }
  // base + line (n / (D - 1) - 1/2) + zigzag z |z|, z from -1 to 1 along each head; of one vector
  // or of several.
  Init ramp(double base, double line, double zigzag) const {
    return Init::each(
        [=, *this](int64_t n) { return base + line * (along(n) - 0.5) + zigzag * zigzag_at(n); });
  }
  Init decay() const {
    return Init::each([*this](int64_t n) {
      const double power = 1.0 + std::pow(depth, 0.3);
      return -5.5 + 6.0 * std::pow(along(n), power) + 2.5 * zigzag_at(n);
    });
  }
  Init norm() const { return Init::constant(std::pow(level, 0.7)); }

  // Ranks grow with the square root of the width, in steps of 32; halves go to the even number of
  // steps, as published ranks do (64, not 96, for decays at a width of 1024).
  int64_t rank(double factor) const {
    const double steps = factor * std::sqrt(static_cast<double>(hidden)) / 32.0;
    return std::max<int64_t>(32, 32 * std::lrint(steps));
  }

 private:
  double along(int64_t n) const { return ratio(n % channels, channels - 1); }
  double zigzag_at(int64_t n) const {
    const double half = static_cast<double>(width - 1) / 2.0;
    const double z = half > 0 ? (static_cast<double>(n % width) - half) / half : 0.0;
    return z * std::abs(z);
  }
};

}  // namespace weft
