#pragma once

#include "tests/support/vgpu/check/checker.h"

namespace vgpu {

// From now on an access of a kernel to an address that is not mapped, or not aligned as its
// instruction wants it, ends the kernel with an error of the checker instead of this process.
void catch_illegal_addresses(Checker& checker);

}  // namespace vgpu
