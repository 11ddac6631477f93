#include "core/base/isa.h"

// In the program that has AMX tiles emulated, that level is the only one.
namespace weft {

std::vector<Isa> available_isas() { return {Isa::kAmx}; }

}  // namespace weft
