#include "tests/support/near.h"

#include <cmath>
#include <cstring>

#include "core/host_access.h"
#include "tests/support/rig.h"

namespace weft::test {

std::vector<double> numbers(ConstView view) {
  std::vector<double> out;
  out.reserve(static_cast<size_t>(view.rows() * view.width()));
  for (int64_t r = 0; r < view.rows(); ++r) {
    for (int64_t c = 0; c < view.width(); ++c) {
      const int64_t at = r * view.row_stride + c;
      switch (view.dtype) {
        case DType::kF32: out.push_back(host<float>(view)[at]); break;
        case DType::kBF16: out.push_back(to_float(host<bf16>(view)[at])); break;
        case DType::kI32: out.push_back(host<int32_t>(view)[at]); break;
        case DType::kF64: out.push_back(host<double>(view)[at]); break;
        default: out.push_back(static_cast<double>(host<int64_t>(view)[at]));
      }
    }
  }
  return out;
}

testing::AssertionResult Near(const std::vector<double>& got, const std::vector<double>& want,
                              double tolerance) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << got.size() << " numbers, expected " << want.size();
  }
  double largest = 0, worst = -1;
  size_t at = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  const double unit = largest < 1e-6 ? 1.0 : largest;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / unit;
    if (!(error <= worst)) worst = error, at = i;  // NaN counts as worst
    if (std::isnan(error)) break;
  }
  if (got.empty() || worst <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "element " << at << " is " << got[at] << ", expected " << want[at] << ": error "
         << worst << " of the largest (" << largest << "), allowed " << tolerance;
}

testing::AssertionResult Near(ConstView got, ConstView want, double tolerance) {
  return Near(numbers(got), numbers(want), tolerance);
}

testing::AssertionResult Near(ConstView got, const std::vector<double>& want, double tolerance) {
  return Near(numbers(got), want, tolerance);
}

testing::AssertionResult SameBits(ConstView a, ConstView b) {
  if (a.rows() != b.rows() || a.width() != b.width() || a.dtype != b.dtype) {
    return testing::AssertionFailure() << "shapes or types differ";
  }
  const int64_t width = a.width() * size_of(a.dtype);
  for (int64_t r = 0; r < a.rows(); ++r) {
    const char* x = static_cast<const char*>(a.data) + r * a.row_stride * size_of(a.dtype);
    const char* y = static_cast<const char*>(b.data) + r * b.row_stride * size_of(b.dtype);
    if (std::memcmp(x, y, static_cast<size_t>(width)) != 0) {
      return testing::AssertionFailure() << "row " << r << " differs";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace weft::test
