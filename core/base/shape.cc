#include "core/base/shape.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 58;  // sizes in bytes cannot overflow either

}  // namespace

Shape::Shape(std::initializer_list<int64_t> extents) {
  for (const int64_t extent : extents) append(extent);
}

void Shape::append(int64_t extent) {
  WEFT_CHECK(dims_ < kMaxDims, "a shape has at most {} dims", kMaxDims);
  WEFT_CHECK(extent >= 0, "extent {} is negative", extent);
  extents_[dims_++] = extent;
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t extent : *this) {
    WEFT_CHECK(!__builtin_mul_overflow(product, extent, &product) && product <= kMaxElements,
               "shape {} is too large", to_string(*this));
  }
  return product;
}

int64_t Shape::rows() const {
  int64_t product = 1;
  for (int dim = 0; dim + 1 < dims_; ++dim) product *= extents_[dim];
  return product;
}

Shape Shape::without_first() const {
  Shape rest;
  for (int dim = 1; dim < dims_; ++dim) rest.append(extents_[dim]);
  return rest;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

}  // namespace weft
