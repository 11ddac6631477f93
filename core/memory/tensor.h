#pragma once

#include <memory>

#include "core/base/device.h"
#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/memory/pool.h"

namespace weft {

// The argument of kernels and collectives: bytes, shape, dtype, device. Owns nothing. Rows (the
// last dim) are contiguous; `row_stride`, in elements, lets a view be a column block of a wider
// matrix (fused projections).
template <class Byte>
struct BasicView {
  Byte* data = nullptr;
  Shape shape;
  int64_t row_stride = 0;
  DType dtype = DType::kF32;
  Device device;

  int64_t rows() const { return shape.rows(); }
  int64_t width() const { return shape.dims() == 0 ? 1 : shape.back(); }
  bool contiguous() const { return row_stride == width() || rows() <= 1; }
  bool empty() const { return shape.elements() == 0; }

  // Columns [begin, begin + count) of every row.
  BasicView columns(int64_t begin, int64_t count) const {
    WEFT_CHECK(begin >= 0 && count >= 0 && begin + count <= width(),
               "columns {}..{} of a view of width {}", begin, begin + count, width());
    BasicView part = *this;
    part.data = offset_bytes(begin * size_of(dtype));
    part.shape[part.shape.dims() - 1] = count;
    return part;
  }

  // Rows [begin, begin + count), as [count, width].
  BasicView row_range(int64_t begin, int64_t count) const {
    WEFT_CHECK(begin >= 0 && count >= 0 && begin + count <= rows(), "rows {}..{} of a view of {}",
               begin, begin + count, rows());
    BasicView part = *this;
    part.data = offset_bytes(begin * row_stride * size_of(dtype));
    part.shape = Shape{count, width()};
    return part;
  }

  operator BasicView<const void>() const requires(!std::is_const_v<Byte>) {
    return {data, shape, row_stride, dtype, device};
  }

 private:
  Byte* offset_bytes(int64_t bytes) const {
    using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
    return static_cast<Char*>(data) + bytes;
  }
};
using View = BasicView<void>;
using ConstView = BasicView<const void>;

// Owns its bytes jointly with its copies (a copy shares, it does not duplicate); contiguous.
class Tensor {
 public:
  Tensor() = default;

  static Tensor empty(Pool& pool, Shape shape, DType dtype, Label label = Label::kActivations);
  static Tensor zeros(Pool& pool, Shape shape, DType dtype, Label label = Label::kActivations,
                      Queue* queue = nullptr);
  // Wraps memory that the caller keeps alive.
  static Tensor borrow(void* data, Shape shape, DType dtype, Device device = {});

  bool defined() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype_); }

  // Const if the handle is const: kernels take their inputs as ConstView.
  View view() const { return {data_, shape_, width(), dtype_, device_}; }
  operator View() const { return view(); }
  operator ConstView() const { return view(); }

  Tensor reshaped(Shape shape) const;                    // same bytes, other extents
  Tensor row_range(int64_t begin, int64_t count) const;  // shares bytes; [count, width]
  Tensor row(int64_t index) const;                       // shares bytes; first dim dropped
  Tensor slice(int64_t begin, int64_t count) const;  // shares bytes; part of a tensor of one dim

 private:
  int64_t width() const { return shape_.dims() == 0 ? 1 : shape_.back(); }

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::kF32;
  Device device_;
};

}  // namespace weft
