#include "core/base/isa.h"

#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "core/base/error.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, kIsaCount> kNames = {"plain", "avx2", "avx512",
                                                            "avx512_bf16", "amx"};

thread_local sigjmp_buf* t_refused = nullptr;

void on_illegal(int) {
  if (t_refused != nullptr) siglongjmp(*t_refused, 1);
  _exit(3);
}

// True if the machine executes `probe`.
template <class Probe>
bool executes(Probe probe) {
  struct sigaction handler {
  }, old_ill{}, old_segv{};
  handler.sa_handler = on_illegal;
  sigemptyset(&handler.sa_mask);
  sigaction(SIGILL, &handler, &old_ill);
  sigaction(SIGSEGV, &handler, &old_segv);
  sigjmp_buf refused;
  t_refused = &refused;
  bool works = false;
  if (sigsetjmp(refused, 1) == 0) works = probe();
  t_refused = nullptr;
  sigaction(SIGILL, &old_ill, nullptr);
  sigaction(SIGSEGV, &old_segv, nullptr);
  return works;
}

__attribute__((target("avx2,fma"))) bool probe_avx2() {
  const __m256 two = _mm256_set1_ps(2.0f);
  const __m256i shifted = _mm256_slli_epi32(_mm256_set1_epi32(1), 1);
  float out[8];
  _mm256_storeu_ps(out, _mm256_fmadd_ps(two, two, _mm256_cvtepi32_ps(shifted)));
  return out[7] == 6.0f;
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) bool probe_avx512() {
  const __m512 two = _mm512_set1_ps(2.0f);
  float out[16];
  _mm512_storeu_ps(out, _mm512_fmadd_ps(two, two, two));
  return out[15] == 6.0f;
}

__attribute__((target("avx512f,avx512bf16"))) bool probe_avx512_bf16() {
  const __m512i twos = _mm512_set1_epi16(0x4000);
  float out[16];
  _mm512_storeu_ps(out, _mm512_dpbf16_ps(_mm512_setzero_ps(), reinterpret_cast<__m512bh>(twos),
                                         reinterpret_cast<__m512bh>(twos)));
  return out[15] == 8.0f;
}

// The kernel grants tile registers on request only, and the configuration must be palette 1 by hand
// (see core/base/isa.h). 2 x 2 bf16 ones: each result is 2.
__attribute__((target("amx-tile,amx-bf16"))) bool probe_amx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {4, 4, 4};
    uint8_t rows[16] = {1, 1, 1};
  } config;
  asm volatile("" ::"r"(&config) : "memory");  // g++ 12 believes only 8 bytes are read
  _tile_loadconfig(&config);
  const uint16_t ones[2] = {0x3f80, 0x3f80};
  asm volatile("" ::"r"(ones) : "memory");
  float out = 0;
  _tile_zero(0);
  _tile_loadd(1, ones, 4);
  _tile_loadd(2, ones, 4);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, &out, 4);
  asm volatile("" ::"r"(&out) : "memory");
  _tile_release();
  return out == 2.0f;
}

std::vector<Isa> find_executed() {
  std::vector<Isa> found = {Isa::kPlain};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !executes(probe_avx2)) {
    return found;
  }
  found.push_back(Isa::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
      !executes(probe_avx512)) {
    return found;
  }
  found.push_back(Isa::kAvx512);
  if (!__builtin_cpu_supports("avx512bf16") || !executes(probe_avx512_bf16)) return found;
  found.push_back(Isa::kAvx512Bf16);
  if (executes(probe_amx)) found.push_back(Isa::kAmx);
  return found;
}

std::string names_of(const std::vector<Isa>& isas) {
  std::vector<std::string_view> names;
  for (const Isa isa : isas) names.push_back(name_of(isa));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string_view name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

std::optional<Isa> isa_named(std::string_view name) {
  for (int i = 0; i < kIsaCount; ++i) {
    if (kNames[static_cast<size_t>(i)] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

std::vector<Isa> machine_isas() {
  static const std::vector<Isa> found = find_executed();
  return found;
}

std::vector<Isa> built_isas() {
  std::vector<Isa> built;
  std::string_view rest = WEFT_LEVELS;  // names separated by commas
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::optional<Isa> isa = isa_named(rest.substr(0, end));
    WEFT_CHECK(isa.has_value(), "WEFT_LEVELS = \"{}\"", WEFT_LEVELS);
    built.push_back(*isa);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return built;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> both;
  const std::vector<Isa> here = machine_isas();
  for (const Isa isa : built_isas()) {
    if (std::find(here.begin(), here.end(), isa) != here.end()) both.push_back(isa);
  }
  return both;
}

Isa chosen_isa() {
  const std::vector<Isa> available = available_isas();
  if (available.empty()) {
    throw ConfigError(
        "this program was built for the instruction sets {} and this machine executes {}; build it "
        "here, or for every machine with -DWEFT_LEVELS=all",
        names_of(built_isas()), names_of(machine_isas()));
  }
  const char* asked = std::getenv("WEFT_ISA");
  if (asked == nullptr || *asked == '\0') return available.back();
  const std::optional<Isa> isa = isa_named(asked);
  if (!isa) {
    throw ConfigError("WEFT_ISA={} is not an instruction set; it is one of {}", asked,
                      fmt::join(kNames, ", "));
  }
  if (std::find(available.begin(), available.end(), *isa) == available.end()) {
    throw ConfigError(
        "WEFT_ISA={}: this machine executes {}, and this program "
        "was built for {}; unset WEFT_ISA or use one of {}",
        asked, names_of(machine_isas()), names_of(built_isas()), names_of(available));
  }
  return *isa;
}

void refuse_level(Isa isa) {
  throw Error("a kernel was asked for {}, and this program was built for {}", name_of(isa),
              names_of(built_isas()));
}

}  // namespace weft
