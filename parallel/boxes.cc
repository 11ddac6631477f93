#include "parallel/boxes.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr int64_t kElement = 4;  // bytes of an f32

// The first dim of the runs that are contiguous on both sides: all dims behind it are whole.
int run_dim(const Shape& extent, const Shape& from, const Shape& to) {
  int dim = extent.dims() - 1;
  while (dim > 0 && extent[dim] == from[dim] && extent[dim] == to[dim]) --dim;
  return dim;
}

// Byte of the element `at` (counted in the box) of a tensor.
int64_t byte_of(const Shape& shape, const Shape& offset, const Shape& at) {
  int64_t element = 0;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    element = element * shape[dim] + offset[dim] + at[dim];
  }
  return element * kElement;
}

}  // namespace

std::optional<Slice> intersection(const Slice& a, const Slice& b) {
  Slice both = a;
  for (int dim = 0; dim < a.offset.dims(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.extent[dim], b.offset[dim] + b.extent[dim]);
    if (begin >= end) return std::nullopt;
    both.offset[dim] = begin;
    both.extent[dim] = end - begin;
  }
  return both;
}

Shape plus(Shape a, const Shape& b) {
  for (int dim = 0; dim < a.dims(); ++dim) a[dim] += b[dim];
  return a;
}

Shape minus(Shape a, const Shape& b) {
  for (int dim = 0; dim < a.dims(); ++dim) a[dim] -= b[dim];
  return a;
}

Slice whole_of(const Shape& shape) { return {minus(shape, shape), shape}; }

Shape local_offset(const std::vector<Slice>& slices, size_t index) {
  Shape offset = minus(slices[index].extent, slices[index].extent);
  int stacked = 0;
  for (int dim = 0; slices.size() > 1 && dim < offset.dims(); ++dim) {
    if (slices[0].offset[dim] != slices[1].offset[dim]) {
      stacked = dim;
      break;
    }
  }
  for (size_t i = 0; i < index; ++i) offset[stacked] += slices[i].extent[stacked];
  return offset;
}

void copy_box(const ConstBoxIn& from, const BoxIn& to, const Shape& extent) {
  if (extent.elements() == 0) return;
  if (extent.dims() == 0) {
    std::memcpy(to.data, from.data, kElement);
    return;
  }
  const int dim = run_dim(extent, from.shape, to.shape);
  int64_t run = kElement;
  for (int d = dim; d < extent.dims(); ++d) run *= extent[d];
  for (Shape at = minus(extent, extent);;) {
    std::memcpy(to.data + byte_of(to.shape, to.offset, at),
                from.data + byte_of(from.shape, from.offset, at), static_cast<size_t>(run));
    int d = dim - 1;
    while (d >= 0 && ++at[d] == extent[d]) at[d--] = 0;
    if (d < 0) return;
  }
}

BoxStream::BoxStream(const Shape& shape, const Shape& offset, const BoxIn& to, const Shape& extent)
    : shape_(shape),
      offset_(offset),
      extent_(extent),
      to_(to),
      run_(kElement),
      at_(minus(extent, extent)) {
  over_ = extent.elements() == 0;
  dim_ = extent.dims() == 0 ? 0 : run_dim(extent, shape, to.shape);
  for (int d = dim_; d < extent.dims(); ++d) run_ *= extent[d];
}

bool BoxStream::next_run() {
  int d = dim_ - 1;
  while (d >= 0 && ++at_[d] == extent_[d]) at_[d--] = 0;
  return d >= 0;
}

void BoxStream::feed(int64_t at, std::span<const std::byte> bytes) {
  const int64_t end = at + std::ssize(bytes);
  while (!over_) {
    const int64_t begin = byte_of(shape_, offset_, at_);
    const int64_t from = std::max(begin, at), to = std::min(begin + run_, end);
    if (from < to) {
      std::memcpy(to_.data + byte_of(to_.shape, to_.offset, at_) + (from - begin),
                  bytes.data() + (from - at), static_cast<size_t>(to - from));
    }
    if (begin + run_ > end) return;  // the rest of it is still to come
    over_ = !next_run();
  }
}

}  // namespace weft
