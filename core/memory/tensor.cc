#include "core/memory/tensor.h"

namespace weft {

Tensor Tensor::empty(Pool& pool, Shape shape, DType dtype, Label label) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.device_ = pool.device();
  t.owner_ = pool.allocate(shape.elements() * size_of(dtype), label);
  t.data_ = t.owner_.get();
  return t;
}

Tensor Tensor::zeros(Pool& pool, Shape shape, DType dtype, Label label, Queue* queue) {
  Tensor t = empty(pool, shape, dtype, label);
  pool.backing().zero(queue, t.data_, t.bytes());
  return t;
}

Tensor Tensor::borrow(void* data, Shape shape, DType dtype, Device device) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.data_ = data;
  t.device_ = device;
  return t;
}

Tensor Tensor::reshaped(Shape shape) const {
  WEFT_CHECK(shape.elements() == elements(), "cannot see {} as {}", shape_, shape);
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::row_range(int64_t begin, int64_t count) const {
  const View part = view().row_range(begin, count);
  Tensor t = *this;
  t.data_ = part.data;
  t.shape_ = part.shape;
  return t;
}

Tensor Tensor::row(int64_t index) const {
  WEFT_CHECK(shape_.dims() > 0 && index >= 0 && index < shape_[0], "row {} of {}", index, shape_);
  Tensor t = *this;
  t.shape_ = shape_.without_first();
  t.data_ = static_cast<char*>(data_) + index * t.bytes();
  return t;
}

Tensor Tensor::slice(int64_t begin, int64_t count) const {
  WEFT_CHECK(shape_.dims() == 1, "a slice of {}, which has not one dim", shape_);
  const View part = view().columns(begin, count);
  Tensor t = *this;
  t.data_ = part.data;
  t.shape_ = part.shape;
  return t;
}

}  // namespace weft
