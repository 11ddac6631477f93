#pragma once

#include "kernels/rows/ranges.h"

namespace weft::kernels::cpu {

void copy_ranges(Exec& exec, std::span<const CopiedRange> ranges);

}  // namespace weft::kernels::cpu
