#include "core/base/shape.h"

#include <gtest/gtest.h>

namespace weft::test {
namespace {

TEST(Shape, CountsElementsAndRows) {
  const Shape shape{2, 37, 8};
  EXPECT_EQ(shape.dims(), 3);
  EXPECT_EQ(shape.elements(), 592);
  EXPECT_EQ(shape.rows(), 74);
  EXPECT_EQ(shape.back(), 8);
}

TEST(Shape, OfAScalarHasOneElementAndNoDims) {
  const Shape scalar;
  EXPECT_EQ(scalar.dims(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(to_string(scalar), "[]");
}

TEST(Shape, WithAnEmptyExtentHasNoElements) {
  EXPECT_EQ((Shape{3, 0, 5}).elements(), 0);
  EXPECT_EQ((Shape{3, 0, 5}).rows(), 0);
  EXPECT_EQ((Shape{0}).elements(), 0);
}

TEST(Shape, DropsTheFirstExtent) {
  EXPECT_EQ((Shape{2, 3, 5}).without_first(), (Shape{3, 5}));
  EXPECT_EQ((Shape{7}).without_first(), Shape());
  EXPECT_EQ(Shape().without_first(), Shape());
}

TEST(Shape, ComparesExtentsAndNumberOfDims) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{2}) == (Shape{2, 1}));  // same elements, other meaning
}

TEST(Shape, PrintsAsAList) { EXPECT_EQ(fmt::format("{}", Shape{2, 37, 8}), "[2, 37, 8]"); }

TEST(Shape, RefusesNegativeExtentsAndASeventhDim) {
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_NO_THROW((Shape{1, 1, 1, 1, 1, 1}));
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST(Shape, RefusesSizesWhoseBytesWouldOverflow) {
  constexpr int64_t k = int64_t{1} << 31;
  EXPECT_THROW((Shape{k, k, k}).elements(), Error);
  EXPECT_THROW((Shape{k, k}).elements(), Error);  // fits 64 bits, but not times eight bytes
  EXPECT_EQ((Shape{k, k / 16}).elements(), k / 16 * k);
}

}  // namespace
}  // namespace weft::test
