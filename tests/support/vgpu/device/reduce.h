#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/vgpu/nccl/exchange.h"

namespace vgpu {

// to[i] = reduction over the members' numbers i, `parts` in the order of ranks. Where the sum
// starts depends on i, and every step rounds to the type: NCCL's own order is not known either, so
// none should be relied upon. The same on every rank.
void reduce(Reduction reduction, ElementType type, const std::vector<std::vector<char>>& parts,
            uint64_t count, char* to);

}  // namespace vgpu
