#include "kernels/states/packed_rows.h"

#include <cstring>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

class PackedRows : public testing::TestWithParam<Isa> {
 protected:
  Rig rig{2, GetParam()};

  Tensor integers(const std::vector<int32_t>& values) {
    const Tensor t = rig.exec.empty({std::ssize(values)}, DType::kI32);
    std::copy(values.begin(), values.end(), host<int32_t>(t));
    return t;
  }
};

// Odd rows of bf16 beside rows of f32: the second start inside a word.
constexpr int64_t kNarrow = 7, kWide = 1009, kWords = (2 * kNarrow + 4 * kWide + 3) / 4;

TEST_P(PackedRows, RowsOfTwoTypesComeBackWhereTheyWere) {
  const Tensor narrow = rig.normal("narrow", {5, kNarrow}, 1.0, DType::kBF16),
               wide = rig.normal("wide", {5, kWide}), index = integers({4, 0, 2});
  const Tensor packed = rig.exec.zeros({3, kWords}, DType::kI32);
  kernels::pack_rows(rig.exec, narrow, index, 0, packed);
  kernels::pack_rows(rig.exec, wide, index, 2 * kNarrow, packed);
  const Tensor narrow_to = rig.exec.zeros(narrow.shape(), DType::kBF16),
               wide_to = rig.exec.zeros(wide.shape());
  kernels::unpack_rows(rig.exec, packed, 0, index, narrow_to);
  kernels::unpack_rows(rig.exec, packed, 2 * kNarrow, index, wide_to);
  for (const int64_t row : {0, 2, 4}) {
    EXPECT_TRUE(SameBits(narrow_to.row(row), narrow.row(row)));
    EXPECT_TRUE(SameBits(wide_to.row(row), wide.row(row)));
  }
  for (const int64_t row : {1, 3}) {
    EXPECT_EQ(numbers(narrow_to.row(row)), Numbers(kNarrow, 0.0));
    EXPECT_EQ(numbers(wide_to.row(row)), Numbers(kWide, 0.0));
  }
}

TEST_P(PackedRows, RowsAreAddedWhereTheyWere) {
  const Tensor rows = rig.normal("rows", {5, kWide}), index = integers({3, 1}),
               packed = rig.exec.zeros({2, kWide + 1}, DType::kI32),
               sums = rig.normal("sums", {5, kWide});
  Numbers want = numbers(sums);
  kernels::pack_rows(rig.exec, rows, index, 4, packed);
  kernels::add_packed_rows(rig.exec, packed, 4, index, sums);
  const Numbers added = numbers(rows);
  for (const size_t row : {1, 3}) {
    for (size_t i = row * kWide; i < (row + 1) * kWide; ++i) {
      want[i] = static_cast<float>(want[i] + added[i]);
    }
  }
  EXPECT_EQ(numbers(sums), want);
}

TEST_P(PackedRows, RowsThatDoNotExistAreRefused) {
  const Tensor rows = rig.normal("rows", {5, 3}), packed = rig.exec.zeros({1, 3}, DType::kI32);
  EXPECT_ANY_THROW(kernels::pack_rows(rig.exec, rows, integers({5}), 0, packed));
  EXPECT_ANY_THROW(kernels::pack_rows(rig.exec, rows, integers({0}), 4, packed));
  EXPECT_ANY_THROW(kernels::add_packed_rows(rig.exec, packed, 0, integers({-1}), rows));
}

INSTANTIATE_TEST_SUITE_P(Every, PackedRows, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
