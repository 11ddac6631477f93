#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/host_access.h"
#include "kernels/checks.h"
#include "kernels/cpu/isa/rows.h"

// Shared by kernels/*/cpu/*.cc: views as raw rows, and how work is cut into tasks. Pieces are a
// function of the shape alone, never of the number of threads, so that results are not either.
namespace weft::kernels {

inline ConstRows rows_of(ConstView v) { return {v.data, v.row_stride, v.dtype}; }
inline Rows rows_of(View v) { return {v.data, v.row_stride, v.dtype}; }

// The elements of a contiguous vector or matrix of exactly `count` numbers of type T.
template <class T, class V>
auto vector_of(const V& v, int64_t count, std::string_view name) {
  WEFT_CHECK(v.shape.elements() == count && v.contiguous(), "{} has shape {}, expected {} elements",
             name, v.shape, count);
  return host<T>(v);
}
// The same, or null where `v` is absent.
template <class T, class V>
decltype(host<T>(std::declval<V>())) optional_vector(const V& v, int64_t count,
                                                     std::string_view name) {
  return given(v) ? vector_of<T>(v, count, name) : nullptr;
}

struct RowBlocks {
  int64_t rows, size;
  int64_t count() const { return (rows + size - 1) / size; }
};

// Pieces of about 16K elements: large beside the cost of handing out a task, small beside a cache.
inline RowBlocks row_blocks(int64_t rows, int64_t width) {
  constexpr int64_t kElements = 16384;
  return {rows, std::max<int64_t>(1, kElements / std::max<int64_t>(1, width))};
}

// The same where every piece leaves a row of partial sums: at most 64 pieces.
inline RowBlocks sum_blocks(int64_t rows, int64_t width) {
  constexpr int64_t kMost = 64;
  return {rows, std::max(row_blocks(rows, width).size, (rows + kMost - 1) / kMost)};
}

// task(block, begin, end)
template <class Task>
void for_blocks(Exec& exec, RowBlocks blocks, Task task) {
  exec.threads.run(blocks.count(), [&](int64_t b) {
    task(b, b * blocks.size, std::min(blocks.rows, (b + 1) * blocks.size));
  });
}

// The common extent of matrices that are walked together element by element. Contiguous ones count
// as one long row, whatever their shapes.
struct Extent {
  int64_t rows, width;
};
template <class First, class... Others>
Extent common_extent(const First& first, const Others&... others) {
  if (nothing_in(first)) return {0, 0};
  if (first.contiguous() && (others.contiguous() && ...)) return {1, first.shape.elements()};
  return {first.rows(), first.width()};
}

template <class First, class... Others>
Extent common_extent(const char* name, const First& first, const Others&... others) {
  if (nothing_in(first)) return {0, 0};
  check_alike(name, first, others...);
  return common_extent(first, others...);
}

// How an extent is cut into boxes of about 16K elements.
class Tiles {
 public:
  explicit Tiles(Extent extent)
      : extent_(extent),
        columns_(std::min(std::max<int64_t>(1, extent.width), kElements)),
        rows_(std::max<int64_t>(1, kElements / columns_)),
        across_((extent.width + columns_ - 1) / columns_) {}

  int64_t count() const { return across_ * ((extent_.rows + rows_ - 1) / rows_); }
  Box operator[](int64_t i) const {
    const int64_t top = i / across_ * rows_, left = i % across_ * columns_;
    return {top, std::min(extent_.rows, top + rows_), left,
            std::min(extent_.width, left + columns_)};
  }

 private:
  static constexpr int64_t kElements = 16384;
  Extent extent_;
  int64_t columns_, rows_, across_;
};

// task(box) for all of the extent.
template <class Task>
void for_tiles(Exec& exec, Extent extent, Task task) {
  const Tiles tiles(extent);
  exec.threads.run(tiles.count(), [&](int64_t i) { task(tiles[i]); });
}

// sum [d] += rows of partial [blocks, d], added in order. (kernels/rows/cpu/reductions.cc)
void add_partials(Exec& exec, const Tensor& partial, float* sum);

}  // namespace weft::kernels
