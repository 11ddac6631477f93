#pragma once

#include "tests/support/vgpu/check/checker.h"

namespace vgpu {

// The checker that instrumented code reports to; null: none.
void set_active_checker(Checker* checker);

}  // namespace vgpu
