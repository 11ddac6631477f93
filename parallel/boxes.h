#pragma once

#include <cstddef>
#include <optional>
#include <span>
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

// The same copy, of a source that comes by and by, from front to back.
class BoxStream {
 public:
  // Of a box of `extent` at `offset` in a tensor of extents `shape`.
  BoxStream(const Shape& shape, const Shape& offset, const BoxIn& to, const Shape& extent);

  // Bytes of the source from byte `at` on, behind those of the call before.
  void feed(int64_t at, std::span<const std::byte> bytes);

 private:
  bool next_run();

  Shape shape_, offset_, extent_;
  BoxIn to_;
  int dim_ = 0;        // of the runs
  int64_t run_ = 0;    // bytes of one
  Shape at_;           // the run that is next, counted in the box
  bool over_ = false;  // no run is
};

}  // namespace weft
