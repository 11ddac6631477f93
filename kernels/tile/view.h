#pragma once

#include <cstdint>

#include "core/base/dtype.h"

// Memory outside the tile as the CPU engine sees it: one head's columns of some rows of an
// activation. The element type is a run-time value, looked at once per load or store of a tile.
namespace weft::kernels::tile {

template <class Byte>
struct MatrixView {
  Byte* data = nullptr;
  int64_t stride = 0;  // elements from row to row
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kF32;
  bool streamed = false;  // not read soon: whole lines may be written past the caches

  bool empty() const { return data == nullptr; }
  MatrixView row_range(int64_t begin, int64_t count) const {
    if (empty()) return *this;
    using Char = const char;
    auto* first = static_cast<Char*>(data) + begin * stride * size_of(dtype);
    return {const_cast<Byte*>(static_cast<const void*>(first)),
            stride,
            count,
            columns,
            dtype,
            streamed};
  }
};
using In = MatrixView<const void>;
using Out = MatrixView<void>;

// f32 numbers, `stride` apart; stride 0: one number for all; no data: zeros.
template <class Float>
struct VectorView {
  Float* data = nullptr;
  int64_t stride = 0;

  bool empty() const { return data == nullptr; }
  VectorView from(int64_t begin) const {
    return {empty() ? nullptr : data + begin * stride, stride};
  }
};
using InVector = VectorView<const float>;
using OutVector = VectorView<float>;

}  // namespace weft::kernels::tile
