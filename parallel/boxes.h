#pragma once

#include <optional>
#include <vector>

#include "core/parameter.h"

// Boxes of tensors: what two of them share, and copies between tensors of other extents.
namespace weft {

// The common part of two boxes of one tensor; nothing when there is none.
std::optional<Slice> intersection(const Slice& a, const Slice& b);

Shape plus(Shape a, const Shape& b);
Shape minus(Shape a, const Shape& b);
Slice whole_of(const Shape& shape);

// Where box `index` of a parameter starts in its local tensor, which stacks its boxes.
Shape local_offset(const std::vector<Slice>& slices, size_t index);

// A box inside a contiguous f32 tensor of extents `shape`; the data need not be aligned.
struct BoxIn {
  char* data;
  Shape shape, offset;
};
struct ConstBoxIn {
  const char* data;
  Shape shape, offset;
};
void copy_box(const ConstBoxIn& from, const BoxIn& to, const Shape& extent);

}  // namespace weft
