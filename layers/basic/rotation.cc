#include "layers/basic/rotation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {
namespace {

// The frequency that follows from the base alone.
double plain_frequency(const RotationOptions& o, int64_t pair, int64_t width) {
  return std::pow(o.rope_base, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
}

// The pair, as a number with a fraction, that turns so often over rope_length.
double pair_that_turns(const RotationOptions& o, double turns, int64_t width) {
  const double length = static_cast<double>(o.rope_length) / (turns * 2.0 * std::numbers::pi);
  return static_cast<double>(width) * std::log(length) / (2.0 * std::log(o.rope_base));
}

// Where the pairs stand between those that are as before (1) and those that are slower (0).
double kept_by_llama3(const RotationOptions& o, double frequency) {
  const double turns = static_cast<double>(o.rope_length) * frequency / (2.0 * std::numbers::pi);
  return std::clamp((turns - o.rope_low) / (o.rope_high - o.rope_low), 0.0, 1.0);
}

double kept_by_yarn(const RotationOptions& o, int64_t pair, int64_t width) {
  double fast = pair_that_turns(o, o.rope_high, width),
         slow = pair_that_turns(o, o.rope_low, width);
  if (o.rope_truncate) fast = std::floor(fast), slow = std::ceil(slow);
  fast = std::max(fast, 0.0);
  slow = std::min(slow, static_cast<double>(width - 1));
  if (fast == slow) slow += 1e-3;
  return 1.0 - std::clamp((static_cast<double>(pair) - fast) / (slow - fast), 0.0, 1.0);
}

}  // namespace

void fields(FieldVisitor& f, RotationOptions& c) {
  f("rope_base", c.rope_base, "base of the rotation's frequencies", above(0));
  f.choice("rope_scaling", c.rope_scaling, {"none", "linear", "llama3", "yarn"},
           "how the rotation was stretched to longer texts than the first ones");
  f("rope_factor", c.rope_factor, "by how much", above(0));
  f("rope_length", c.rope_length, "llama3, yarn: positions of those first texts", at_least(1));
  f("rope_low", c.rope_low,
    "llama3, yarn: what turns less often than this over rope_length is stretched wholly; 0: 1",
    at_least(0));
  f("rope_high", c.rope_high,
    "llama3, yarn: what turns more often than this is left alone; 0: 4 for llama3, 32 for yarn",
    at_least(0));
  f("rope_attention", c.rope_attention,
    "yarn: factor on q and k; 0: 0.1 log(rope_factor) + 1, where that is above 1", at_least(0));
  f("rope_truncate", c.rope_truncate, "yarn: the stretch begins and ends at whole pairs");
}

RotationOptions resolve(const MixerBuild& build, RotationOptions o) {
  const bool llama3 = o.rope_scaling == "llama3", yarn = o.rope_scaling == "yarn";
  if (o.rope_low == 0) o.rope_low = 1.0;
  if (o.rope_high == 0) o.rope_high = llama3 ? 4.0 : 32.0;
  if (!yarn) o.rope_attention = 1.0;
  if (o.rope_attention == 0) o.rope_attention = 0.1 * std::log(std::max(1.0, o.rope_factor)) + 1.0;
  if (yarn && o.rope_base <= 1) {
    throw ConfigError("{} = {}: rope_scaling = \"yarn\" needs a base above 1; the usual one is {}",
                      place_of(build.options, "rope_base"), o.rope_base, 10000);
  }
  if ((llama3 || yarn) && o.rope_high <= o.rope_low) {
    throw ConfigError("{} = {}: must be above rope_low = {}; {} is usual for rope_scaling = \"{}\"",
                      place_of(build.options, "rope_high"), o.rope_high, o.rope_low,
                      llama3 ? 4 : 32, o.rope_scaling);
  }
  return o;
}

std::vector<double> frequencies_of(const RotationOptions& o, int64_t width) {
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < width / 2; ++pair) {
    const double plain = plain_frequency(o, pair, width);
    double kept = 1.0;
    if (o.rope_scaling == "linear") kept = 0.0;
    if (o.rope_scaling == "llama3") kept = kept_by_llama3(o, plain);
    if (o.rope_scaling == "yarn") kept = kept_by_yarn(o, pair, width);
    frequencies.push_back(kept == 1.0 ? plain
                                      : plain * kept + plain / o.rope_factor * (1.0 - kept));
  }
  return frequencies;
}

Rotation::Rotation(const RotationOptions& options, int64_t rotary_width, int64_t head_width)
    : frequencies_(frequencies_of(options, rotary_width)),
      scale_(options.rope_attention),
      head_width_(head_width) {}

void Rotation::turn(Exec& exec, const Sequence& sequence, int64_t heads, View x,
                    Direction direction) const {
  const kernels::Rope rope{.heads = heads,
                           .head_width = head_width_,
                           .rotary_width = 2 * static_cast<int64_t>(frequencies_.size()),
                           .direction = direction,
                           .frequencies = frequencies_,
                           .scale = scale_};
  kernels::rope(exec, rope, sequence.positions.view(exec), x);
}

}  // namespace weft
