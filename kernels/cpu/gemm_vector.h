#pragma once

#include "kernels/cpu/gemm_pack.h"

// Products by vector multiply-adds, f32 and bf16 (widened while packing), on every instruction set.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Rows of a register block: as many accumulators as the registers hold beside two vectors of b.
inline constexpr int kMr = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 4;
inline constexpr int kNr = 2 * kLanes;
// A panel of b [kKBlock, kNr] stays in the first-level cache, the packed rows of a tile in the
// second.
inline constexpr int64_t kKBlock = 256;
inline constexpr int64_t kTileRows = kMr * (96 / kMr);

// Where sums of a register block go: out = add + sums.
struct SumsTo {
  const float* add;  // or null; may be `out`
  int64_t add_stride;
  void* out;
  int64_t out_stride;
  bool out_bf16;
};

template <class Out>
WEFT_INLINE void write_row(const float* sums, const float* add, Out* out, int64_t columns) {
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    const VF v = load(sums + j);
    store(out + j, add == nullptr ? v : load(add + j) + v);
  }
  if (j < columns) {
    const VF v = load(sums + j);
    store_part(out + j, add == nullptr ? v : load_part(add + j, columns - j) + v, columns - j);
  }
}

// sums: [rows, stride], readable up to whole vectors
[[gnu::noinline]] static void write_sums(const float* sums, int64_t stride, int64_t rows,
                                         int64_t columns, const SumsTo& to) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* add = to.add == nullptr ? nullptr : to.add + r * to.add_stride;
    if (to.out_bf16) {
      write_row(sums + r * stride, add, static_cast<bf16*>(to.out) + r * to.out_stride, columns);
    } else {
      write_row(sums + r * stride, add, static_cast<float*>(to.out) + r * to.out_stride, columns);
    }
  }
}

// sums [rows, kNr] = a panel of a times a panel of b
template <int rows>
static void multiply(const float* a, const float* b, int64_t k, int64_t columns, const SumsTo& to) {
  VF sums[rows][2] = {};
  for (int64_t p = 0; p < k; ++p, a += kMr, b += kNr) {
    const VF b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const VF x = splat(a[r]);
      sums[r][0] += x * b0;
      sums[r][1] += x * b1;
    }
  }
  if (columns < kNr || to.out_bf16) {
    float buffer[rows][kNr];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      store(buffer[r], sums[r][0]);
      store(buffer[r] + kLanes, sums[r][1]);
    }
    write_sums(buffer[0], kNr, rows, columns, to);
    return;
  }
  auto* out = static_cast<float*>(to.out);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    VF s0 = sums[r][0], s1 = sums[r][1];
    if (to.add != nullptr) {
      s0 = load(to.add + r * to.add_stride) + s0;
      s1 = load(to.add + r * to.add_stride + kLanes) + s1;
    }
    store(out + r * to.out_stride, s0);
    store(out + r * to.out_stride + kLanes, s1);
  }
}

using Multiply = void (*)(const float* a, const float* b, int64_t k, int64_t columns,
                          const SumsTo& to);
template <int count>
struct Multiplies {
  Multiply of[count + 1];
};
inline constexpr Multiplies<14> kMultiply = {
    {nullptr, multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<(kMr > 4 ? 5 : 4)>,
     multiply<(kMr > 4 ? 6 : 4)>, multiply<(kMr > 6 ? 7 : 4)>, multiply<(kMr > 6 ? 8 : 4)>,
     multiply<(kMr > 6 ? 9 : 4)>, multiply<(kMr > 6 ? 10 : 4)>, multiply<(kMr > 6 ? 11 : 4)>,
     multiply<(kMr > 6 ? 12 : 4)>, multiply<(kMr > 6 ? 13 : 4)>, multiply<(kMr > 6 ? 14 : 4)>}};

WEFT_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
WEFT_INLINE int64_t rounded_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Scratch of a tile: the packed rows of a, one panel of b, and sums in f32 where c cannot carry
// them.
WEFT_INLINE int64_t a_elements(int64_t rows) {
  return rounded_up(rows, kMr) * kKBlock + 2 * kLanes;
}

static int64_t vector_scratch_bytes(int64_t rows, int64_t columns) {
  return 4 * (rounded_up(a_elements(rows), 16) + kKBlock * kNr + rows * columns);
}

// Sums of k block `k0` of a tile: f32 results collect in c, bf16 results in scratch until the last
// block.
WEFT_INLINE SumsTo sums_to(const GemmTile& tile, int64_t k0, int64_t k_block, float* collected) {
  const bool first = k0 == 0, last = k0 + k_block >= tile.k;
  if (!tile.c_bf16) {
    auto* c = static_cast<float*>(tile.c);
    return {first && !tile.accumulate ? nullptr : c, tile.c_stride, c, tile.c_stride, false};
  }
  const float* add = first ? nullptr : collected;
  if (last) return {add, tile.columns, tile.c, tile.c_stride, true};
  return {add, tile.columns, collected, tile.columns, false};
}

WEFT_INLINE SumsTo block_of(SumsTo to, int64_t row, int64_t column) {
  if (to.add != nullptr) to.add += row * to.add_stride + column;
  const int64_t at = row * to.out_stride + column;
  to.out = to.out_bf16 ? static_cast<void*>(static_cast<bf16*>(to.out) + at)
                       : static_cast<void*>(static_cast<float*>(to.out) + at);
  return to;
}

template <class T>
static void vector_tile(const GemmTile& tile) {
  auto* a_panels = static_cast<float*>(tile.scratch);
  float* b_panel = a_panels + rounded_up(a_elements(tile.rows), 16);
  float* collected = b_panel + kKBlock * kNr;
  int64_t k0 = 0;
  do {
    const int64_t kc = smaller(kKBlock, tile.k - k0);
    pack_panels<kMr, T>({tile.a, tile.first_row, tile.rows, k0, kc, a_panels, kc * kMr});
    const SumsTo to = sums_to(tile, k0, kKBlock, collected);
    for (int64_t j = 0; j < tile.columns; j += kNr) {
      const int64_t columns = smaller(kNr, tile.columns - j);
      const float* b = b_panel;
      if (tile.panels != nullptr) {
        b = static_cast<const float*>(tile.panels) + j / kNr * tile.panel_stride + k0 * kNr;
      } else {
        pack_panels<kNr, T>({tile.b, tile.first_column + j, columns, k0, kc, b_panel, 0});
      }
      for (int64_t i = 0; i < tile.rows; i += kMr) {
        const int64_t rows = smaller(kMr, tile.rows - i);
        kMultiply.of[rows](a_panels + i * kc, b, kc, columns, block_of(to, i, j));
      }
    }
    k0 += kKBlock;
  } while (k0 < tile.k);
}

template <class T>
static void vector_pack_b(const GemmPack& pack) {
  pack_panels<kNr, T>(pack);
}

template <class T>
inline constexpr GemmKernels kVectorKernels = {
    kMr, kNr, 1, 4, kTileRows, vector_pack_b<T>, vector_tile<T>, vector_scratch_bytes};

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
