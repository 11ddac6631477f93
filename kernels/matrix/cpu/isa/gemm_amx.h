#pragma once

#include "kernels/cpu/isa/amx.h"
#include "kernels/matrix/cpu/isa/gemm_amx_pack.h"
#include "kernels/matrix/cpu/isa/gemm_vector.h"

// bf16 products by tiles: sums of 32 rows by 32 columns in four tiles, two tiles of a, two of b.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Long blocks of k: leaving the tiles and adding to c costs about as much as five steps of 32 k.
inline constexpr int64_t kAmxMaxKBlock = 1024;
inline constexpr int64_t kAmxTileRows = 256;

// sums [rows, 32] of `steps` blocks; rows beyond 16 only when `both`.
template <bool both, class Tiles>
WEFT_INLINE void amx_multiply(Tiles& tiles, const bf16* a, const bf16* b, int64_t steps,
                              float* sums) {
  constexpr int64_t kHalf = kBlockElements / 2;
  constexpr int64_t kRowBytes = 64;
  tiles.template zero<0>();
  tiles.template zero<1>();
  if constexpr (both) {
    tiles.template zero<2>();
    tiles.template zero<3>();
  }
  for (int64_t step = 0; step < steps; ++step, a += kBlockElements, b += kBlockElements) {
    tiles.template load<6>(b, kRowBytes);
    tiles.template load<4>(a, kRowBytes);
    tiles.template load<7>(b + kHalf, kRowBytes);
    tiles.template multiply<0, 4, 6>();
    tiles.template multiply<1, 4, 7>();
    if constexpr (both) {
      tiles.template load<5>(a + kHalf, kRowBytes);
      tiles.template multiply<2, 5, 6>();
      tiles.template multiply<3, 5, 7>();
    }
  }
  constexpr int64_t kSumsBytes = kBlock * 4;
  tiles.template store<0>(sums, kSumsBytes);
  tiles.template store<1>(sums + 16, kSumsBytes);
  if constexpr (both) {
    tiles.template store<2>(sums + 16 * kBlock, kSumsBytes);
    tiles.template store<3>(sums + 16 * kBlock + 16, kSumsBytes);
  }
}

struct AmxPanels {
  const bf16* a;
  const bf16* b;
  int64_t a_stride, b_stride;  // elements from panel to panel
  int64_t steps;
};

// Rows [first, first + count) of a tile, which are whole blocks or less than one.
template <class Tiles>
WEFT_INLINE void amx_rows(Tiles& tiles, const GemmTile& tile, const AmxPanels& panels,
                          int64_t first, int64_t count, const SumsTo& to) {
  if (count == 0) return;
  const int64_t block_rows = smaller(count, kBlock);
  tiles.configure(amx_config(block_rows));
  alignas(64) float sums[kBlock * kBlock];
  for (int64_t j = 0; j < tile.columns; j += kBlock) {
    const bf16* b = panels.b + j / kBlock * panels.b_stride;
    for (int64_t i = first; i < first + count; i += kBlock) {
      const bf16* a = panels.a + i / kBlock * panels.a_stride;
      if (block_rows > 16) {
        amx_multiply<true>(tiles, a, b, panels.steps, sums);
      } else {
        amx_multiply<false>(tiles, a, b, panels.steps, sums);
      }
      write_sums(sums, kBlock, block_rows, smaller(kBlock, tile.columns - j), block_of(to, i, j));
    }
  }
}

inline int64_t amx_scratch_bytes(int64_t rows, int64_t columns) {
  return 2 * kAmxMaxKBlock * (rounded_up(rows, kBlock) + rounded_up(columns, kBlock)) +
         4 * rows * columns;
}

template <class Tiles>
void amx_tile(const GemmTile& tile) {
  auto* a_panels = static_cast<bf16*>(tile.scratch);
  bf16* b_panels = a_panels + kAmxMaxKBlock * rounded_up(tile.rows, kBlock);
  bf16* end = b_panels + kAmxMaxKBlock * rounded_up(tile.columns, kBlock);
  auto* collected = reinterpret_cast<float*>(end);
  Tiles tiles;
  const int64_t k_block = k_block_of(tile.k, kAmxMaxKBlock, kBlock);
  const int64_t whole = tile.rows / kBlock * kBlock;
  int64_t k0 = 0;
  do {
    const int64_t kc = smaller(k_block, tile.k - k0);
    const int64_t steps = (kc + kBlock - 1) / kBlock, stride = steps * kBlockElements;
    amx_pack<Side::kLeft>({tile.a, tile.first_row, tile.rows, k0, kc, a_panels, stride});
    AmxPanels panels{a_panels, b_panels, stride, stride, steps};
    if (tile.panels != nullptr) {
      panels.b = static_cast<const bf16*>(tile.panels) + k0 * kBlock;
      panels.b_stride = tile.panel_stride;
    } else {
      amx_pack<Side::kRight>({tile.b, tile.first_column, tile.columns, k0, kc, b_panels, stride});
    }
    const SumsTo to = sums_to(tile, k0, k_block, collected);
    amx_rows(tiles, tile, panels, 0, whole, to);
    amx_rows(tiles, tile, panels, whole, tile.rows - whole, to);
    k0 += k_block;
  } while (k0 < tile.k);
  tiles.release();
}

template <class Tiles>
double amx_peak_loop(int64_t steps) {
  Tiles tiles;
  tiles.configure(amx_config(kBlock));
  alignas(64) const bf16 zeros[kBlockElements] = {};
  tiles.template load<4>(zeros, 64);
  tiles.template load<5>(zeros, 64);
  tiles.template load<6>(zeros, 64);
  tiles.template load<7>(zeros, 64);
  for (int64_t step = 0; step < steps; ++step) {
    tiles.template multiply<0, 4, 6>();
    tiles.template multiply<1, 4, 7>();
    tiles.template multiply<2, 5, 6>();
    tiles.template multiply<3, 5, 7>();
  }
  tiles.release();
  return 2.0 * kBlock * kBlock * kBlock * static_cast<double>(steps);
}

template <class Tiles>
inline constexpr GemmKernels kAmxKernels = {
    .mr = kBlock,
    .nr = kBlock,
    .k_step = kBlock,
    .packed_bytes = 2,
    .max_rows = kAmxTileRows,
    .pack_b = amx_pack<Side::kRight>,
    .tile = amx_tile<Tiles>,
    .scratch_bytes = amx_scratch_bytes,
    .peak_loop = amx_peak_loop<Tiles>,
};

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
