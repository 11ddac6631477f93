#pragma once

#include <functional>

#include "layers/context/mixer.h"
#include "layers/mixers/linear_core.h"

namespace weft {

// Lower bounds l of forget gates, f32 per key channel.
class LowerBounds {
 public:
  virtual ~LowerBounds() = default;
  virtual Tensor value(Exec& exec) const = 0;    // undefined: zero
  virtual Tensor gradient() const = 0;           // to be added to; undefined: not wanted
  virtual void finish_gradients(Exec&) const {}  // see Mixer::finish_gradients
};
using LowerBoundsMaker = std::function<std::unique_ptr<LowerBounds>(const Build&)>;

// HGRN2: the rows of k are forget gates per key channel, a = l + (1 - l) sigmoid(f), with which the
// state decays, and the key is their complement, k = 1 - a. `bounds` may be empty: l = 0.
CoreMaker tied_keys_core(const HeadOptions& heads, LowerBoundsMaker bounds);

}  // namespace weft
