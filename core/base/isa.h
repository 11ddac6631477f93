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
  kAvx512Bf16,  // plus products of pairs of bf16
  kAmx,         // plus AMX tiles with bf16 products
};
inline constexpr int kIsaCount = 5;

std::string_view name_of(Isa isa);  // "plain", "avx2", "avx512", "avx512_bf16", "amx"
std::optional<Isa> isa_named(std::string_view name);

// The levels this machine executes, lowest first. Detected by running one instruction of each
// level: CPUID is unreliable for AMX under hypervisors, in both directions.
std::vector<Isa> machine_isas();
// The levels this program was built for (the CMake variable WEFT_LEVELS), lowest first.
std::vector<Isa> built_isas();
// Levels that are built and that this machine executes, lowest first.
std::vector<Isa> available_isas();

// The highest available level, or the lower one named by the environment variable WEFT_ISA.
// Throws ConfigError if there is none.
Isa chosen_isa();

// Internal error: a kernel was called at a level that this program was not built for.
[[noreturn]] void refuse_level(Isa isa);

}  // namespace weft
