#pragma once

#include "parallel/layout/ownership.h"

namespace weft::test {

// Calls each(local index, global index) for all elements of a rank's part of a parameter.
template <class Each>
void each_element(const Parameter& p, const Coordinates& here, Each each) {
  for (const OwnedPiece& piece : pieces_of(p.spec, here, {0, row_count(p.shape)})) {
    const Shape &offset = piece.box.offset, &extent = piece.box.extent;
    for (int64_t i = 0; i < extent.elements(); ++i) {
      int64_t rest = i, index = 0, stride = 1;
      for (int dim = extent.dims() - 1; dim >= 0; --dim) {
        index += (offset[dim] + rest % extent[dim]) * stride;
        rest /= extent[dim];
        stride *= p.spec.global[dim];
      }
      each(static_cast<size_t>(piece.begin + i), static_cast<size_t>(index));
    }
  }
}

}  // namespace weft::test
