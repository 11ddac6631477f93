#pragma once

#include <array>
#include <utility>

#include "kernels/matrix/cpu/isa/gemm_pack.h"

// Products by vector multiply-adds, on every instruction set. Panels are made of 32-bit words
// (words.h): f32 numbers, bf16 widened while packing, or two bf16 of neighbouring k.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Rows of a register block: as many accumulators as the registers hold beside two vectors of b.
inline constexpr int kMr = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 4;
inline constexpr int kNr = 2 * kLanes;
// Words down a block of k: a panel of b [kMaxWords, kNr] stays near the core, the packed rows of a
// tile in the second-level cache.
inline constexpr int64_t kMaxWords = 384;
inline constexpr int64_t kTileRows = kMr * (144 / kMr);

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
[[gnu::noinline]] inline void write_sums(const float* sums, int64_t stride, int64_t rows,
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

// A block of rows against one panel of b or several.
struct BlockProduct {
  const float* a;
  const float* b;
  int64_t b_stride;  // words from panel to panel
  int64_t words;     // down the block
  int64_t columns;   // of the last panel
  SumsTo to;
};

// Where sums of a register block that is whole and f32 go: straight to memory.
template <int rows, int panels>
WEFT_INLINE void write_block(const VF (&sums)[rows][panels * 2], const SumsTo& to) {
  auto* out = static_cast<float*>(to.out);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < panels * 2; ++v) {
      const int64_t at = v * kLanes;
      VF sum = sums[r][v];
      if (to.add != nullptr) sum = load(to.add + r * to.add_stride + at) + sum;
      store(out + r * to.out_stride + at, sum);
    }
  }
}

template <class Words, int rows, int panels>
void multiply(const BlockProduct& product) {
  const SumsTo& to = product.to;
  if (!to.out_bf16) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      __builtin_prefetch(static_cast<const float*>(to.out) + r * to.out_stride, 1);
    }
  }
  VF sums[rows][panels * 2] = {};
  const float *a = product.a, *b = product.b;
  const int64_t words = product.words, b_stride = product.b_stride;
  for (int64_t p = 0; p < words; ++p, a += kMr, b += kNr) {
#pragma GCC unroll 4
    for (int q = 0; q < panels; ++q) {
      const VF b0 = load(b + q * b_stride), b1 = load(b + q * b_stride + kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const VF x = splat(a[r]);
        sums[r][2 * q] = Words::multiply_add(sums[r][2 * q], x, b0);
        sums[r][2 * q + 1] = Words::multiply_add(sums[r][2 * q + 1], x, b1);
      }
    }
  }
  if (product.columns == kNr && !to.out_bf16) return write_block<rows, panels>(sums, to);
  float buffer[rows][panels * kNr];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < panels * 2; ++v) store(buffer[r] + v * kLanes, sums[r][v]);
  }
  write_sums(buffer[0], panels * kNr, rows, (panels - 1) * kNr + product.columns, to);
}

// Few rows have too few sums in flight to keep the units busy: they take several panels at a time.
using Multiply = void (*)(const BlockProduct& product);
struct RowKernels {
  Multiply one, wide;
  int panels;  // of `wide`
};
template <class Words, int rows>
constexpr RowKernels row_kernels() {
  if constexpr (rows == 0) {
    return {nullptr, nullptr, 0};
  } else {
    constexpr int kPanels = kMr / rows < 4 ? kMr / rows : 4;
    return {multiply<Words, rows, 1>, multiply<Words, rows, kPanels>, kPanels};
  }
}
template <class Words, int... rows>
constexpr std::array<RowKernels, sizeof...(rows)> all_row_kernels(
    std::integer_sequence<int, rows...>) {
  return {row_kernels<Words, rows>()...};
}
template <class Words>
inline constexpr auto kRowKernels =
    all_row_kernels<Words>(std::make_integer_sequence<int, kMr + 1>{});

WEFT_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
WEFT_INLINE int64_t rounded_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// k in as few blocks as possible, all about the same. Depends on k alone, as the results do.
WEFT_INLINE int64_t k_block_of(int64_t k, int64_t most, int64_t step) {
  const int64_t blocks = k <= most ? 1 : (k + most - 1) / most;
  return rounded_up((k + blocks - 1) / blocks, step);
}

// Scratch of a tile: the packed rows of a, one panel of b, and sums in f32 where c cannot carry
// them.
WEFT_INLINE int64_t a_words(int64_t rows) { return rounded_up(rows, kMr) * kMaxWords + 2 * kLanes; }

inline int64_t vector_scratch_bytes(int64_t rows, int64_t columns) {
  return 4 * (rounded_up(a_words(rows), 16) + kMaxWords * kNr + rows * columns);
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

WEFT_INLINE void prefetch(const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
}

// One block of k of a tile whose b is packed: all rows against one panel after the other.
struct PackedBlock {
  const float* a;
  const float* b;
  int64_t b_stride, words;
  SumsTo to;
};

template <class Words>
WEFT_INLINE void multiply_panels(const GemmTile& tile, const PackedBlock& block) {
  const float* b = block.b;
  int64_t j = 0;
  if (tile.rows <= kMr / 2) {
    const RowKernels& kernels = kRowKernels<Words>[tile.rows];
    const int64_t width = kernels.panels * kNr;
    for (; j + width <= tile.columns; j += width, b += kernels.panels * block.b_stride) {
      kernels.wide({block.a, b, block.b_stride, block.words, kNr, block_of(block.to, 0, j)});
    }
  }
  for (; j < tile.columns; j += kNr, b += block.b_stride) {
    const int64_t columns = smaller(kNr, tile.columns - j);
    // While the rows go over this panel, the next one comes near.
    const bool more = j + kNr < tile.columns;
    const auto* ahead = reinterpret_cast<const char*>(more ? b + block.b_stride : b);
    const int64_t share = more ? block.words * kNr * 4 * kMr / tile.rows : 0;
    for (int64_t i = 0; i < tile.rows; i += kMr, ahead += share) {
      prefetch(ahead, share);
      kRowKernels<Words>[smaller(kMr, tile.rows - i)].one(
          {block.a + i * block.words, b, 0, block.words, columns, block_of(block.to, i, j)});
    }
  }
}

// As above, packing each panel of b before it is used.
template <class Words>
WEFT_INLINE void multiply_on_the_way(const GemmTile& tile, int64_t k0, int64_t k, float* panel,
                                     const PackedBlock& block) {
  for (int64_t j = 0; j < tile.columns; j += kNr) {
    const int64_t columns = smaller(kNr, tile.columns - j);
    pack_panels<Words, kNr>({tile.b, tile.first_column + j, columns, k0, k, panel, 0});
    for (int64_t i = 0; i < tile.rows; i += kMr) {
      kRowKernels<Words>[smaller(kMr, tile.rows - i)].one(
          {block.a + i * block.words, panel, 0, block.words, columns, block_of(block.to, i, j)});
    }
  }
}

template <class Words>
void vector_tile(const GemmTile& tile) {
  constexpr int64_t per = Words::kPerWord;
  auto* a_panels = static_cast<float*>(tile.scratch);
  float* b_panel = a_panels + rounded_up(a_words(tile.rows), 16);
  float* collected = b_panel + kMaxWords * kNr;
  const int64_t k_block = k_block_of(tile.k, kMaxWords * per, kLanes * per);
  int64_t k0 = 0;
  do {
    const int64_t k = smaller(k_block, tile.k - k0), words = (k + per - 1) / per;
    pack_panels<Words, kMr>(
        {tile.a, tile.first_row, tile.rows, k0, k, a_panels, words * per * kMr});
    PackedBlock block{a_panels, nullptr, tile.panel_stride / per, words,
                      sums_to(tile, k0, k_block, collected)};
    if (tile.panels != nullptr) {
      block.b = static_cast<const float*>(tile.panels) + k0 / per * kNr;
      multiply_panels<Words>(tile, block);
    } else {
      multiply_on_the_way<Words>(tile, k0, k, b_panel, block);
    }
    k0 += k_block;
  } while (k0 < tile.k);
}

template <class Words>
void vector_pack_b(const GemmPack& pack) {
  pack_panels<Words, kNr>(pack);
}

// The most the machine can do: multiply-adds on registers alone, the yardstick of the benchmarks.
template <class Words>
double vector_peak_loop(int64_t steps) {
  constexpr int kChains = 12;  // above latency times units
  VF sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = splat(static_cast<float>(i));
  VF x = splat(0.5f), y = splat(0.25f);
  for (int64_t step = 0; step < steps; ++step) {
    asm volatile("" : "+v"(x), "+v"(y));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = Words::multiply_add(sums[i], x, y);
  }
  VF total = {};
  for (int i = 0; i < kChains; ++i) total += sums[i];
  asm volatile("" ::"v"(total));
  return 2.0 * kChains * kLanes * Words::kPerWord * static_cast<double>(steps);
}

template <class Words>
inline constexpr GemmKernels kVectorKernels = {
    .mr = kMr,
    .nr = kNr,
    .k_step = Words::kPerWord,
    .packed_bytes = 4 / Words::kPerWord,
    .max_rows = kTileRows,
    .pack_b = vector_pack_b<Words>,
    .tile = vector_tile<Words>,
    .scratch_bytes = vector_scratch_bytes,
    .peak_loop = vector_peak_loop<Words>,
};

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
