#include "core/memory/tensor.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace weft::test {
namespace {

struct TensorTest : testing::Test {
  Ledger ledger;
  Pool pool{ledger};

  Tensor counting(Shape shape) {  // 0, 1, 2, ...
    Tensor t = Tensor::empty(pool, shape, DType::kF32);
    std::iota(host<float>(t), host<float>(t) + t.elements(), 0.0f);
    return t;
  }
};

TEST_F(TensorTest, CopiesShareBytes) {
  const Tensor a = counting({3, 5});
  const Tensor b = a;
  host<float>(b)[7] = -1;
  EXPECT_EQ(host<float>(a)[7], -1);
}

TEST_F(TensorTest, KeepsItsBytesWhileAnyPartOfItLives) {
  Tensor part;
  {
    const Tensor whole = counting({3, 5});
    part = whole.row_range(1, 2);
    EXPECT_EQ(ledger.total().live, 64);  // 60 bytes, in lines of 64
  }
  EXPECT_EQ(ledger.total().live, 64);
  EXPECT_EQ(host<float>(part)[0], 5);
  part = {};
  EXPECT_EQ(ledger.total().live, 0);
}

TEST_F(TensorTest, ZerosAreZeroEvenInReusedMemory) {
  { const Tensor dirty = counting({1000}); }
  const Tensor clean = Tensor::zeros(pool, {1000}, DType::kF32);
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(host<float>(clean)[i], 0) << i;
}

TEST_F(TensorTest, RowsAndRangesPointAtTheRightElements) {
  const Tensor t = counting({2, 3, 5});
  EXPECT_EQ(t.row(1).shape(), (Shape{3, 5}));
  EXPECT_EQ(host<float>(t.row(1))[0], 15);
  EXPECT_EQ(host<float>(t.row(1).row(2))[4], 29);
  EXPECT_EQ(host<float>(t.row(1).row(2).row(3))[0], 28);  // a scalar
  EXPECT_EQ(t.row_range(4, 2).shape(), (Shape{2, 5}));
  EXPECT_EQ(host<float>(t.row_range(4, 2))[0], 20);
  EXPECT_EQ(t.row_range(6, 0).elements(), 0);
  EXPECT_THROW(t.row(2), Error);
  EXPECT_THROW(t.row(-1), Error);
  EXPECT_THROW(t.row_range(5, 2), Error);
}

TEST_F(TensorTest, ReshapingKeepsOrderAndCount) {
  const Tensor t = counting({2, 6});
  EXPECT_EQ(host<float>(t.reshaped({3, 4}).row(2))[1], 9);
  EXPECT_THROW(t.reshaped({5}), Error);
}

TEST_F(TensorTest, EmptyTensorsAreDefined) {
  const Tensor t = Tensor::zeros(pool, {0, 7}, DType::kBF16);
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.bytes(), 0);
  EXPECT_TRUE(t.view().empty());
  EXPECT_FALSE(Tensor().defined());
}

TEST_F(TensorTest, ViewsRefuseAnotherElementType) {
  const Tensor t = Tensor::empty(pool, {4}, DType::kBF16);
  EXPECT_NO_THROW(host<bf16>(t));
  EXPECT_THROW(host<float>(t), Error);
  EXPECT_THROW(host<int32_t>(ConstView(t)), Error);
}

TEST_F(TensorTest, ColumnBlocksKeepTheStrideOfTheWholeMatrix) {
  const Tensor t = counting({3, 7});
  const View part = t.view().columns(2, 4);
  EXPECT_EQ(part.shape, (Shape{3, 4}));
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(host<float>(part)[part.row_stride * 2 + 1], 2 * 7 + 3);
  const View lower = part.row_range(1, 2).columns(1, 1);
  EXPECT_EQ(host<float>(lower)[lower.row_stride], 2 * 7 + 3);
  EXPECT_TRUE(part.row_range(1, 1).contiguous());  // one row is, whatever the stride
  EXPECT_TRUE(t.view().contiguous());
  EXPECT_THROW(part.columns(3, 2), Error);
}

TEST_F(TensorTest, BorrowsWithoutOwning) {
  float mine[6] = {1, 2, 3, 4, 5, 6};
  {
    const Tensor t = Tensor::borrow(mine, {2, 3}, DType::kF32);
    host<float>(t.row(1))[0] = 40;
  }
  EXPECT_EQ(mine[3], 40);
  EXPECT_EQ(ledger.total().peak, 0);
}

TEST_F(TensorTest, RefusesShapesBeyondAnyMemory) {
  EXPECT_THROW(Tensor::empty(pool, {int64_t{1} << 61, 2}, DType::kF32), Error);
}

TEST(Bf16, RoundsToNearestWithTiesToEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(-2.0f).bits, 0xc000);
  EXPECT_EQ(to_bf16(1.0f + 0x1.0p-8f).bits, 0x3f80);                   // half-way: down to even
  EXPECT_EQ(to_bf16(1.0f + 0x3.0p-8f).bits, 0x3f82);                   // half-way: up to even
  EXPECT_EQ(to_bf16(1.0f + 0x1.0p-8f + 0x1.0p-20f).bits, 0x3f81);      // just above
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);  // rounds to infinity
}

TEST(Bf16, KeepsInfinityAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_bf16(inf)), inf);
  EXPECT_EQ(to_float(to_bf16(-inf)), -inf);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  // A NaN whose payload sits in the lower half only would become infinity when cut off.
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Bf16, SurvivesARoundTripForEveryBitPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) continue;
    ASSERT_EQ(to_bf16(to_float(x)).bits, bits);
  }
}

TEST(DType, SizesMatchTheTypes) {
  EXPECT_EQ(size_of(DType::kF32), 4);
  EXPECT_EQ(size_of(DType::kBF16), 2);
  EXPECT_EQ(size_of(DType::kI32), 4);
  EXPECT_EQ(size_of(DType::kI64), 8);
  EXPECT_EQ(name_of(DType::kI64), "i64");
}

}  // namespace
}  // namespace weft::test
