#pragma once

#include <string>
#include <vector>

#include "tests/support/program.h"

namespace weft::test {

// The code that a program ends with when the virtual GPU found mistakes of it; and when the host
// touched memory that is the device's.
inline constexpr int kMistakes = 86, kHostFault = 87;

// A command on the virtual GPU of this build, with variables like "VGPU_ORDER=3".
Outcome on_vgpu(const std::vector<std::string>& command,
                const std::vector<std::string>& environment = {});

// Runs one of the cases of tests/support/vgpu/tests/app.h.
Outcome run_case(const std::string& name, const std::vector<std::string>& environment = {});

// A program of the folder of the virtual GPU.
std::string vgpu_program(const std::string& name);

}  // namespace weft::test
