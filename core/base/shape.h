#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/base/error.h"

namespace weft {

// Extents of a tensor, outermost first, at most six. A shape with no dims is a scalar.
class Shape {
 public:
  static constexpr int kMaxDims = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);

  int dims() const { return dims_; }
  int64_t operator[](int dim) const { return extents_[dim]; }
  int64_t& operator[](int dim) { return extents_[dim]; }
  int64_t back() const { return extents_[dims_ - 1]; }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + dims_; }

  int64_t elements() const;  // product of all extents; 1 for a scalar
  int64_t rows() const;      // product of all but the last
  void append(int64_t extent);
  Shape without_first() const;

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxDims> extents_{};
  int dims_ = 0;
};

std::string to_string(const Shape& shape);  // "[2, 37, 8]"

}  // namespace weft

template <>
struct fmt::formatter<weft::Shape> : fmt::formatter<std::string> {
  auto format(const weft::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(weft::to_string(shape), context);
  }
};
