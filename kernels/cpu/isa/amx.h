#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/isa/simd.h"

// Tile registers: eight of them, up to 16 rows of 64 bytes. Kernels are templates over one of two
// policies, so that the same blocking and packing that runs on the hardware is run by tests
// anywhere.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

inline constexpr int kTiles = 8;

// Rows and bytes per row of each tile, as the instruction wants them. Palette 1 by hand:
// hypervisors hide the palettes from CPUID.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Sums in tiles 0..3 (row half, column half), a in 4 and 5, b in 6 and 7. Rows that do not exist
// are not multiplied: the time of a product is that of the rows of a.
WEFT_INLINE TileConfig amx_config(int64_t rows) {
  const auto upper = static_cast<uint8_t>(rows < 16 ? rows : 16);
  const auto lower = static_cast<uint8_t>(rows - upper);
  const uint8_t of[kTiles] = {upper, upper, lower, lower, upper, lower, 16, 16};
  TileConfig config;
  for (int t = 0; t < kTiles; ++t) {
    config.rows[t] = of[t] == 0 ? 1 : of[t];  // a tile without rows would be an error to touch
    config.row_bytes[t] = 64;
  }
  return config;
}

// Plain C++ with the meaning of the instructions.
class EmulatedTiles {
 public:
  void configure(const TileConfig& config) { config_ = config; }
  void release() {}

  template <int tile>
  void zero() {
    for (auto& row : tiles_[tile].bytes) __builtin_memset(row, 0, sizeof row);
  }
  template <int tile>
  void load(const void* from, int64_t stride) {
    zero<tile>();
    for (int r = 0; r < config_.rows[tile]; ++r) {
      __builtin_memcpy(tiles_[tile].bytes[r], static_cast<const char*>(from) + r * stride,
                       config_.row_bytes[tile]);
    }
  }
  template <int tile>
  void store(void* to, int64_t stride) const {
    for (int r = 0; r < config_.rows[tile]; ++r) {
      __builtin_memcpy(static_cast<char*>(to) + r * stride, tiles_[tile].bytes[r],
                       config_.row_bytes[tile]);
    }
  }

  // sums [rows, columns] += a [rows, 2 pairs] b [pairs, columns of 2]: the even and the odd
  // products are summed on their own over the tile and then added, as the hardware does.
  template <int sums, int a, int b>
  void multiply() {
    for (int r = 0; r < config_.rows[sums]; ++r) {
      for (int c = 0; c < config_.row_bytes[sums] / 4; ++c) {
        float parts[2] = {0.0f, 0.0f};
        for (int pair = 0; pair < config_.rows[b]; ++pair) {
          for (int odd = 0; odd < 2; ++odd) {
            parts[odd] += half(tiles_[a], r, 2 * pair + odd) * half(tiles_[b], pair, 2 * c + odd);
          }
        }
        float sum;
        __builtin_memcpy(&sum, tiles_[sums].bytes[r] + 4 * c, 4);
        sum += parts[0] + parts[1];
        __builtin_memcpy(tiles_[sums].bytes[r] + 4 * c, &sum, 4);
      }
    }
  }

 private:
  struct Tile {
    uint8_t bytes[16][64];
  };
  static float half(const Tile& tile, int row, int column) {
    bf16 x;
    __builtin_memcpy(&x, tile.bytes[row] + 2 * column, 2);
    return as_float(x);
  }

  TileConfig config_;
  Tile tiles_[kTiles];
};

#ifdef __AMX_BF16__
// The instructions. Written as assembly because the compiler's intrinsics paste the tile number
// from the source text, and declare only 8 bytes of the configuration as read.
struct HardwareTiles {
  WEFT_INLINE void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  WEFT_INLINE void release() { asm volatile("tilerelease" ::: "memory"); }
  template <int tile>
  WEFT_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  template <int tile>
  WEFT_INLINE void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  WEFT_INLINE void store(void* to, int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int sums, int a, int b>
  WEFT_INLINE void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
  }
};
#endif

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
