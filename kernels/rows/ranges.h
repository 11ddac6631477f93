#pragma once

#include <span>

#include "core/memory/exec.h"

namespace weft::kernels {

// y = x, contiguous elements of one type.
struct CopiedRange {
  ConstView x;
  View y;
};

// Packs and unpacks many small tensors with one call. Ranges that are written overlap no other.
void copy_ranges(Exec& exec, std::span<const CopiedRange> ranges);

}  // namespace weft::kernels
