#pragma once

#include "kernels/cpu/isa/amx.h"
#include "kernels/tile/cpu_vectors.h"

// The products of the CPU engine by tile registers: strips of 32 x 32 in four of them. Words along
// the columns of a left factor and down the rows of a right one (cpu_storage.h) are the layout that
// the instruction wants.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// The registers, configured for as long as an engine lives.
#if defined(WEFT_EMULATED_TILES)
using TileRegisters = EmulatedTiles;
#elif defined(__AMX_BF16__)
using TileRegisters = HardwareTiles;
#else
struct TileRegisters {
  WEFT_INLINE void configure(const TileConfig&) {}
  WEFT_INLINE void release() {}
};
#endif

class TileUnit {
 public:
  WEFT_INLINE TileUnit() { registers.configure(amx_config(32)); }
  WEFT_INLINE ~TileUnit() { registers.release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  TileRegisters registers;
};

inline constexpr int64_t kTileWords = 16;  // of the inner dimension at a time

// acc [32, 32] (+)= a b over whole steps of kTileWords; of the four quarters those that count.
template <bool lower, bool right, class Tiles>
[[gnu::noinline]] void multiply_tiles(Tiles& tiles, const Factors& f, float* acc, bool fresh) {
  constexpr int64_t kAccBytes = 32 * 4;
  const int64_t a_bytes = f.a_stride * 4, b_bytes = f.b_stride * 4;
  if (fresh) {
    tiles.template zero<0>();
    if constexpr (right) tiles.template zero<1>();
    if constexpr (lower) tiles.template zero<2>();
    if constexpr (lower && right) tiles.template zero<3>();
  } else {
    tiles.template load<0>(acc, kAccBytes);
    if constexpr (right) tiles.template load<1>(acc + 16, kAccBytes);
    if constexpr (lower) tiles.template load<2>(acc + 16 * 32, kAccBytes);
    if constexpr (lower && right) tiles.template load<3>(acc + 16 * 32 + 16, kAccBytes);
  }
  const float *a = f.a, *b = f.b;
  for (int64_t k = 0; k + kTileWords <= f.depth; k += kTileWords) {
    tiles.template load<4>(a, a_bytes);
    tiles.template load<6>(b, b_bytes);
    tiles.template multiply<0, 4, 6>();
    if constexpr (right) {
      tiles.template load<7>(b + 16, b_bytes);
      tiles.template multiply<1, 4, 7>();
    }
    if constexpr (lower) {
      tiles.template load<5>(a + 16 * f.a_stride, a_bytes);
      tiles.template multiply<2, 5, 6>();
      if constexpr (right) tiles.template multiply<3, 5, 7>();
    }
    a += kTileWords;
    b += kTileWords * f.b_stride;
  }
  tiles.template store<0>(acc, kAccBytes);
  if constexpr (right) tiles.template store<1>(acc + 16, kAccBytes);
  if constexpr (lower) tiles.template store<2>(acc + 16 * 32, kAccBytes);
  if constexpr (lower && right) tiles.template store<3>(acc + 16 * 32 + 16, kAccBytes);
}

template <class Tiles>
WEFT_INLINE void multiply_tiles(Tiles& tiles, const Factors& f, int64_t rows, int64_t columns,
                                float* acc, bool fresh) {
  const bool lower = rows > 16, right = columns > 16;
  if (lower && right) {
    multiply_tiles<true, true>(tiles, f, acc, fresh);
  } else if (lower) {
    multiply_tiles<true, false>(tiles, f, acc, fresh);
  } else if (right) {
    multiply_tiles<false, true>(tiles, f, acc, fresh);
  } else {
    multiply_tiles<false, false>(tiles, f, acc, fresh);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
