#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace weft::kernels {

// A matrix as kernels/cpu sees it: rows of contiguous elements, `stride` elements apart. Plain data
// and no member functions, because those would be emitted once for all instruction sets. No data:
// absent.
struct ConstRows {
  const void* data;
  int64_t stride;
  DType dtype;
};
struct Rows {
  void* data;
  int64_t stride;
  DType dtype;
};

// A rectangle of it: rows [begin, end), columns [left, right).
struct Box {
  int64_t begin, end, left, right;
};

}  // namespace weft::kernels
