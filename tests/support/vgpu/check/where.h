#pragma once

#include <string>

namespace vgpu {

// "axpy.cu:12" for an instruction, from the debug information of the library it is in; where there
// is none, "function+0x12".
std::string place_of(const void* instruction);

std::string demangled(const char* name);
// Demangled name without result type and parameters: "app::rotate<3>".
std::string kernel_name(const std::string& mangled);

}  // namespace vgpu
