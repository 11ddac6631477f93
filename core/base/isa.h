#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace weft {

// Instruction sets the CPU kernels are compiled for, each containing the ones before it.
enum class Isa : uint8_t {
  kPlain,       // any x86-64 (SSE2)
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // F, BW, DQ, VL
  kAvx512Bf16,  // and products of pairs of bf16
  kAmx,         // and AMX tiles with bf16 products
};
inline constexpr int kIsaCount = 5;

std::string_view name_of(Isa isa);  // "plain", "avx2", "avx512", "avx512_bf16", "amx"
std::optional<Isa> isa_named(std::string_view name);

// The levels this machine executes, lowest first. Found by running one instruction of each level:
// hypervisors announce AMX without executing it, and execute it without announcing the palette.
std::vector<Isa> machine_isas();
// The levels this program was built for (the CMake variable WEFT_LEVELS), lowest first.
std::vector<Isa> built_isas();
// Those of both.
std::vector<Isa> available_isas();

// The highest available level, or the lower one named by the environment variable WEFT_ISA.
// ConfigError where there is none.
Isa chosen_isa();

// Our own mistake: a kernel was asked for a level that this program was not built for.
[[noreturn]] void refuse_level(Isa isa);

}  // namespace weft
