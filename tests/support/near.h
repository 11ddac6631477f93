#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/memory/tensor.h"

namespace weft::test {

// |got - want| <= tolerance * max|want| for every element (absolutely, when all of `want` is below
// 1e-6). On failure prints the worst element. Derive tolerances: rounding errors of a sum of n
// terms grow like sqrt(n) epsilon, epsilon being 6e-8 for f32 and 4e-3 for bf16.
testing::AssertionResult Near(const std::vector<double>& got, const std::vector<double>& want,
                              double tolerance);
testing::AssertionResult Near(ConstView got, ConstView want, double tolerance);
testing::AssertionResult Near(ConstView got, const std::vector<double>& want, double tolerance);

// True if all bits are equal.
testing::AssertionResult SameBits(ConstView a, ConstView b);

}  // namespace weft::test
