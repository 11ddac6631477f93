#include <fmt/format.h>

#include "core/base/isa.h"

// Prints the instruction sets this machine executes, lowest first.
int main() {
  for (const weft::Isa isa : weft::available_isas()) fmt::print("{}\n", weft::name_of(isa));
}
