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

// The same copy, of a source that is at hand in parts, in any order and by several threads: of a
// box of `extent` at `offset` in a tensor of extents `shape`, whose bytes are counted from its
// first.
class BoxCopy {
 public:
  BoxCopy(const Shape& shape, const Shape& offset, const BoxIn& to, const Shape& extent);

  struct Range {
    int64_t begin, end;
    bool empty() const { return begin >= end; }
  };
  // From the first to behind the last byte of the box among these bytes of the source.
  Range within(Range bytes) const;
  // Copies what of the box is among the bytes of the source from byte `at` on.
  void copy(int64_t at, std::span<const std::byte> bytes) const;
  // Where these bytes go, when they lie in the box and stay side by side; else null.
  std::byte* place_of(Range bytes) const;

 private:
  // The runs of bytes that are contiguous on both sides, in the order of the source.
  int64_t first_ending_behind(int64_t byte) const;
  Shape run_at(int64_t index) const;  // where it starts, counted in the box
  bool next(Shape& at) const;
  int64_t source_of(const Shape& at) const;

  Shape shape_, offset_, extent_;
  BoxIn to_;
  int dim_ = 0;       // of the runs: all dims behind it are whole
  int64_t run_ = 0;   // bytes of one
  int64_t runs_ = 0;  // how many
};

}  // namespace weft
