#include "parallel/checkpoint/boxes.h"

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

BoxCopy::BoxCopy(const Shape& shape, const Shape& offset, const BoxIn& to, const Shape& extent)
    : shape_(shape), offset_(offset), extent_(extent), to_(to), run_(kElement) {
  dim_ = extent.dims() == 0 ? 0 : run_dim(extent, shape, to.shape);
  for (int d = dim_; d < extent.dims(); ++d) run_ *= extent[d];
  runs_ = run_ == 0 ? 0 : extent.elements() * kElement / run_;
}

int64_t BoxCopy::source_of(const Shape& at) const { return byte_of(shape_, offset_, at); }

Shape BoxCopy::run_at(int64_t index) const {
  Shape at = minus(extent_, extent_);
  for (int d = dim_ - 1; d >= 0; --d) {
    at[d] = index % extent_[d];
    index /= extent_[d];
  }
  return at;
}

bool BoxCopy::next(Shape& at) const {
  int d = dim_ - 1;
  while (d >= 0 && ++at[d] == extent_[d]) at[d--] = 0;
  return d >= 0;
}

int64_t BoxCopy::first_ending_behind(int64_t byte) const {
  int64_t low = 0, high = runs_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (source_of(run_at(middle)) + run_ > byte) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

BoxCopy::Range BoxCopy::within(Range bytes) const {
  const int64_t first = first_ending_behind(bytes.begin);
  if (first == runs_) return {0, 0};
  const Range found{std::max(bytes.begin, source_of(run_at(first))), bytes.end};
  if (found.empty()) return {0, 0};
  // The last run that starts before the end is the first that does not end before it, or the one
  // in front of that.
  int64_t last = std::min(first_ending_behind(bytes.end - 1), runs_ - 1);
  if (source_of(run_at(last)) >= bytes.end) --last;
  return {found.begin, std::min(bytes.end, source_of(run_at(last)) + run_)};
}

void BoxCopy::copy(int64_t at, std::span<const std::byte> bytes) const {
  const int64_t end = at + std::ssize(bytes), first = first_ending_behind(at);
  if (first == runs_) return;
  Shape run = run_at(first);
  do {
    const int64_t begin = source_of(run);
    if (begin >= end) return;
    const int64_t from = std::max(begin, at), to = std::min(begin + run_, end);
    std::memcpy(to_.data + byte_of(to_.shape, to_.offset, run) + (from - begin),
                bytes.data() + (from - at), static_cast<size_t>(to - from));
  } while (next(run));
}

std::byte* BoxCopy::place_of(Range bytes) const {
  const int64_t index = first_ending_behind(bytes.begin);
  if (index == runs_) return nullptr;
  const Shape run = run_at(index);
  const int64_t begin = source_of(run);
  if (begin > bytes.begin || begin + run_ < bytes.end) return nullptr;
  return reinterpret_cast<std::byte*>(to_.data + byte_of(to_.shape, to_.offset, run)) +
         (bytes.begin - begin);
}

}  // namespace weft
