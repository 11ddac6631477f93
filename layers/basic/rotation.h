#pragma once

#include <string>
#include <vector>

#include "kernels/rows/rope.h"
#include "layers/context/mixer.h"

namespace weft {

// How fast the pairs of rotated channels turn. Plain: pair i of w / 2 by base^(-2i/w) per position.
// Models that were trained on `rope_length` positions and then stretched by `rope_factor` (f) turn
// slow pairs f times slower and leave fast ones as they are; n is how often a pair turns over
// rope_length:
//   linear   all pairs f times slower
//   llama3   n < low: f times slower; n > high: as before; between: a mean that moves with n
//   yarn     the same with a mean that moves with i between the pairs where n is low and high, and
//            q and k grow by `rope_attention`
struct RotationOptions {
  double rope_base = 10000.0;
  std::string rope_scaling = "none";
  double rope_factor = 1.0;
  int64_t rope_length = 8192;
  double rope_low = 0.0, rope_high = 0.0;
  double rope_attention = 0.0;
  bool rope_truncate = true;
};
void fields(FieldVisitor& f, RotationOptions& c);

// Fills in what 0 leaves to the scaling; refuses bounds that are none.
RotationOptions resolve(const MixerBuild& build, RotationOptions options);

// For `rotary_width` channels; options resolved.
std::vector<double> frequencies_of(const RotationOptions& options, int64_t rotary_width);

// Rotation of the first channels of every head of q, k and their gradients.
class Rotation {
 public:
  using Direction = kernels::Rope::Direction;

  Rotation(const RotationOptions& options, int64_t rotary_width, int64_t head_width);

  // x [tokens, heads * head_width] in place.
  void turn(Exec& exec, const Sequence& sequence, int64_t heads, View x, Direction direction) const;

  double growth() const { return scale_; }  // of what is rotated

 private:
  HostTable<double> frequencies_;
  double scale_;
  int64_t head_width_;
};

}  // namespace weft
