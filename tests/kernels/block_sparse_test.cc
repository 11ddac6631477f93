#include "kernels/matrix/block_sparse.h"

#include "core/memory/host_table.h"
#include "kernels/rows/gather.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::BlockTopology;
using kernels::PackedMatrices;
using kernels::Transpose;

// Empty first, middle and last; exactly a block; one more than a block; one row; all in one;
// nothing.
const std::vector<std::vector<int64_t>> kOffsets = {
    {0, 0, 8, 17, 17, 18, 18}, {0, 0, 37, 37}, {0, 1}, {0, 0, 0}};
constexpr int64_t kBlock = 8;

TEST(BlockTopology, PadsEveryGroupToWholeBlocks) {
  const BlockTopology t = kernels::block_topology(kOffsets[0], kBlock);
  EXPECT_EQ(t.offsets, (std::vector<int64_t>{0, 0, 8, 24, 24, 32, 32}));
  ASSERT_EQ(t.blocks.size(), 4u);
  EXPECT_EQ(t.blocks[2].group, 2);
  EXPECT_EQ(t.blocks[2].first, 16);
  EXPECT_EQ(t.blocks[2].rows, 1);
}

TEST(BlockTopology, PadsValuesAndTakesThemBack) {
  Rig rig;
  for (const auto& offsets : kOffsets) {
    const BlockTopology t = kernels::block_topology(offsets, kBlock);
    const int64_t rows = offsets.back();
    const Tensor values = rig.normal("v", {rows}), wide = rig.normal("w", {t.padded_rows()});
    const Tensor back = rig.normal("b", {rows});
    kernels::pad_values(rig.exec, t, values, wide);
    kernels::unpad_values(rig.exec, t, wide, back);
    EXPECT_EQ(numbers(values), numbers(back));
    double sum = 0, padded_sum = 0;
    for (const double v : numbers(values)) sum += std::abs(v);
    for (const double v : numbers(wide)) padded_sum += std::abs(v);
    EXPECT_NEAR(sum, padded_sum, 1e-12);  // padding is zero
  }
}

TEST(GatherRows, TakesRowsAndZeros) {
  Rig rig;
  for (const DType dtype : kReals) {
    const Padded x(rig, "x", 7, 13, dtype), y(rig, "y", 5, 13, dtype);
    const HostTable<int32_t> index({6, -1, 0, 0, -1}), beyond({7, 7, 7, 7, 7});
    kernels::gather_rows(rig.exec, x, index.view(rig.exec), y);
    const Numbers from = x.numbers(), got = y.numbers();
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t i = 0; i < 13; ++i) {
        EXPECT_EQ(got[r * 13 + i], index[r] < 0 ? 0.0 : from[index[r] * 13 + i]);
      }
    }
    EXPECT_TRUE(y.surroundings_kept());
    EXPECT_THROW(kernels::gather_rows(rig.exec, x, beyond.view(rig.exec), y), Error);
  }
}

// Rows with zeros for padding, and the index that made them.
struct Rows {
  std::vector<int32_t> index;  // padded row -> row, or -1
  Tensor dense, padded;
};

Rows make_rows(Rig& rig, const BlockTopology& t, std::string_view name, int64_t rows, int64_t width,
               DType dtype) {
  std::vector<int32_t> straight(static_cast<size_t>(rows));
  for (size_t i = 0; i < straight.size(); ++i) straight[i] = static_cast<int32_t>(i);
  const Tensor index = rig.exec.empty({t.padded_rows()}, DType::kI32);
  kernels::pad_values(rig.exec, t, HostTable<int32_t>(straight).view(rig.exec), index);
  Rows out{download<int32_t>(rig.exec, index), rig.normal(name, {rows, width}, 1.0, dtype),
           rig.exec.empty({t.padded_rows(), width}, dtype)};
  kernels::gather_rows(rig.exec, out.dense, index, out.padded);
  return out;
}

class BlockSparse : public testing::TestWithParam<Isa> {
 protected:
  static constexpr int64_t kK = 33, kN = 19;
};

TEST_P(BlockSparse, ProductsMatchNaiveLoops) {
  Rig rig(2, GetParam());
  for (const auto& offsets : kOffsets) {
    for (const DType dtype : kReals) {
      const auto groups = static_cast<int64_t>(offsets.size()) - 1;
      const int64_t rows = offsets.back();
      const BlockTopology t = kernels::block_topology(offsets, kBlock);
      const Rows a = make_rows(rig, t, "a", rows, kK, dtype);
      const Tensor b = rig.normal("b", {groups, kK, kN}, 1.0, dtype);
      const PackedMatrices packed(rig.exec, b, Transpose::kNo);
      Numbers want(static_cast<size_t>(rows * kN));
      const Numbers x = numbers(a.dense), w = numbers(b);
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = offsets[g]; i < offsets[g + 1]; ++i) {
          for (int64_t j = 0; j < kN; ++j) {
            for (int64_t k = 0; k < kK; ++k) {
              want[i * kN + j] += x[i * kK + k] * w[(g * kK + k) * kN + j];
            }
          }
        }
      }
      const Tensor dense = rig.normal("c", {rows, kN}, 1.0, dtype);
      kernels::dense_from_sparse(rig.exec, t, a.padded, packed, dense);
      EXPECT_TRUE(Near(dense, want, tolerance(dtype, kK)));

      const Tensor sparse = rig.normal("s", {t.padded_rows(), kN}, 1.0, dtype);
      kernels::sparse_from_dense(rig.exec, t, a.padded, packed, sparse);
      Numbers padded_want;
      for (const int32_t i : a.index) {
        for (int64_t j = 0; j < kN; ++j) padded_want.push_back(i < 0 ? 0.0 : want[i * kN + j]);
      }
      EXPECT_TRUE(Near(sparse, padded_want, tolerance(dtype, kK)));
    }
  }
}

TEST_P(BlockSparse, SumsOverRowsIgnorePadding) {
  Rig rig(2, GetParam());
  for (const auto& offsets : kOffsets) {
    for (const DType dtype : kReals) {
      const auto groups = static_cast<int64_t>(offsets.size()) - 1;
      const int64_t rows = offsets.back();
      const BlockTopology t = kernels::block_topology(offsets, kBlock);
      const Rows a = make_rows(rig, t, "a", rows, kK, dtype);
      const Rows b = make_rows(rig, t, "b", rows, kN, dtype);
      const Tensor c = rig.normal("c", {groups, kK, kN});
      Numbers want = numbers(c);
      const Numbers x = numbers(a.dense), y = numbers(b.dense);
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t r = offsets[g]; r < offsets[g + 1]; ++r) {
          for (int64_t i = 0; i < kK; ++i) {
            for (int64_t j = 0; j < kN; ++j) {
              want[(g * kK + i) * kN + j] += x[r * kK + i] * y[r * kN + j];
            }
          }
        }
      }
      kernels::add_from_sparse(rig.exec, t, a.padded, b.padded, c);
      EXPECT_TRUE(Near(c, want, tolerance(DType::kF32, rows)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, BlockSparse, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
