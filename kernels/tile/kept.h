#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/host_access.h"
#include "core/memory/tensor.h"

// Where the items of a scan (one head of one document each) keep what forward leaves for backward,
// one after the other in one tensor: f32, [floats()].
namespace weft::kernels::tile {

class KeptOffsets {
 public:
  // floats_of(i): how many numbers item i keeps.
  template <class Count>
  KeptOffsets(const char* kernel, int64_t items, Count floats_of) : kernel_(kernel), at_{0} {
    for (int64_t i = 0; i < items; ++i) at_.push_back(at_.back() + floats_of(i));
  }
  int64_t floats() const { return at_.back(); }

  // Null where nothing is kept.
  float* of(const View& kept, int64_t item) const {
    return kept.data == nullptr ? nullptr
                                : host<float>(checked(kept)) + at_[static_cast<size_t>(item)];
  }
  const float* of(const ConstView& kept, int64_t item) const {
    return kept.data == nullptr ? nullptr
                                : host<float>(checked(kept)) + at_[static_cast<size_t>(item)];
  }

 private:
  template <class V>
  const V& checked(const V& kept) const {
    WEFT_CHECK(kept.dtype == DType::kF32 && kept.contiguous() && kept.shape.elements() == floats(),
               "{}: kept states are {} {}, expected f32 [{}]", kernel_, name_of(kept.dtype),
               kept.shape, floats());
    return kept;
  }

  const char* kernel_;
  std::vector<int64_t> at_;
};

}  // namespace weft::kernels::tile
