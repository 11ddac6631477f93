#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

#include "core/base/isa.h"
#include "core/host_access.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {

inline constexpr DType kReals[] = {DType::kF32, DType::kBF16};
using Numbers = std::vector<double>;

// Allowed error relative to the largest element, for results that are sums of `terms` products
// computed in f32 (a few roundings each, 6e-8) and stored in `out` (half a unit of bf16's 8 bits is
// 2e-3).
inline double tolerance(DType out, int64_t terms) {
  const double sums = 6e-8 * (8.0 + 2.0 * std::sqrt(static_cast<double>(terms)));
  return out == DType::kBF16 ? 0.00390625 + sums : sums;
}

// Tolerance of sums in f32 over products of chunks of bf16 inputs. Above AVX-512 every factor of a
// product is rounded to bf16 (2^-9), also those that are results, up to five one after the other;
// below, 1e-5 is some hundred roundings of f32.
inline double chunk_tolerance(DType inputs, Isa isa) {
  return inputs == DType::kBF16 && isa >= Isa::kAvx512Bf16 ? 1e-2 : 1e-5;
}

// A matrix inside of a wider one, at an odd place, between columns that must not change.
class Padded {
 public:
  Padded(Rig& rig, std::string_view name, int64_t rows, int64_t width, DType dtype,
         double deviation = 1.0)
      : whole_(rig.normal("padding", {rows, width + 4}, 1.0, dtype)),
        before_(rig.normal("padding", {rows, width + 4}, 1.0, dtype)),
        width_(width) {
    const Tensor inner = rig.normal(name, {rows, width}, deviation, dtype);
    const auto bytes = static_cast<size_t>(width * size_of(dtype));
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(static_cast<char*>(view().data) + r * view().row_stride * size_of(dtype),
                  static_cast<char*>(host_bytes(inner)) + r * width * size_of(dtype), bytes);
    }
  }

  View view() const { return whole_.view().columns(1, width_); }
  operator View() const { return view(); }
  operator ConstView() const { return view(); }
  Numbers numbers() const { return test::numbers(view()); }

  testing::AssertionResult surroundings_kept() const {
    const auto left = SameBits(whole_.view().columns(0, 1), before_.view().columns(0, 1));
    if (!left) return left;
    return SameBits(whole_.view().columns(width_ + 1, 3), before_.view().columns(width_ + 1, 3));
  }

 private:
  Tensor whole_, before_;
  int64_t width_;
};

// Central differences of f at x, in double: errors of about h^2 f''' + 1e-16 f / h, far below f32.
inline Numbers slopes(const std::function<double(const Numbers&)>& f, Numbers x) {
  constexpr double kStep = 1e-5;
  Numbers out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    const double below = f(x);
    x[i] = at;
    out[i] = (above - below) / (2 * kStep);
  }
  return out;
}

// The part of a loss that outputs y with gradient dy contribute.
inline double dot(const Numbers& a, const Numbers& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

inline Numbers plus(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline double largest(const Numbers& x) {
  double most = 0;
  for (const double v : x) most = std::max(most, std::abs(v));
  return most;
}

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }

}  // namespace weft::test
