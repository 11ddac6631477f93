#include "kernels/model/embedding.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

class Embedding : public testing::TestWithParam<Isa> {
 protected:
  static Tensor tokens(Rig& rig, int64_t count, uint64_t vocabulary) {
    const RandomStream stream(3, "tokens");
    const Tensor out = rig.exec.empty({count}, DType::kI32);
    for (int64_t i = 0; i < count; ++i) {
      host<int32_t>(out)[i] =
          static_cast<int32_t>(stream.below(static_cast<uint64_t>(i), vocabulary));
    }
    return out;
  }
};

TEST_P(Embedding, TakesRowsOfTheTable) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 7, 131}) {
    for (int mix = 0; mix < 4; ++mix) {
      const DType out = kReals[mix / 2];
      const Tensor ids = tokens(rig, 307, 17);
      const Padded table(rig, "t", 17, width, kReals[mix % 2]), y(rig, "y", 307, width, out);
      kernels::embedding_forward(rig.exec, ids, table, y);
      const Numbers entries = table.numbers();
      Numbers want;
      for (const double id : numbers(ids)) {
        const auto row = entries.begin() + static_cast<int64_t>(id) * width;
        want.insert(want.end(), row, row + width);
      }
      EXPECT_TRUE(Near(y.view(), want, out == table.view().dtype ? 0.0 : tolerance(out, 1)));
      EXPECT_TRUE(y.surroundings_kept());
    }
  }
}

TEST_P(Embedding, BackwardAddsUpTheRowsOfEachEntryInTokenOrder) {
  const int64_t rows = 211, width = 301;  // more than two column blocks
  for (const DType dtype : kReals) {
    for (const int threads : {1, 2, 3}) {
      Rig rig(threads, GetParam());
      const Tensor ids = tokens(rig, rows, 13);
      const Padded dy(rig, "dy", rows, width, dtype), d_table(rig, "dt", 13, width, DType::kF32);
      std::vector<float> want;
      for (const double v : d_table.numbers()) want.push_back(static_cast<float>(v));
      const Numbers g = dy.numbers();
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) {
          want[static_cast<size_t>(host<int32_t>(ids)[r] * width + i)] +=
              static_cast<float>(g[static_cast<size_t>(r * width + i)]);
        }
      }
      kernels::embedding_backward(rig.exec, ids, dy, d_table);
      EXPECT_EQ(d_table.numbers(), Numbers(want.begin(), want.end()));
      EXPECT_TRUE(d_table.surroundings_kept());
    }
  }
}

TEST_P(Embedding, NamesTheTokenThatIsNotInTheTable) {
  Rig rig(1, GetParam());
  const Tensor ids = tokens(rig, 5, 3), table = rig.normal("t", {3, 4});
  const Tensor y = rig.exec.empty({5, 4});
  for (const int32_t bad : {3, -1}) {
    host<int32_t>(ids)[2] = bad;
    try {
      kernels::embedding_forward(rig.exec, ids, table, y);
      FAIL() << "token " << bad << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(fmt::format("token {} at position 2", bad)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST_P(Embedding, SlicesOfTheTableAddUpToIt) {
  Rig rig(2, GetParam());
  const int64_t width = 9, borders[] = {0, 8, 16, 17, 17};
  const Tensor ids = tokens(rig, 41, 17), table = rig.normal("t", {17, width});
  const Tensor y = rig.exec.empty({41, width}), dy = rig.normal("dy", {41, width});
  const Tensor d_table = rig.exec.zeros({17, width}), d_slices = rig.exec.zeros({17, width});
  kernels::embedding_forward(rig.exec, ids, table, y);
  kernels::embedding_backward(rig.exec, ids, dy, d_table);
  Numbers sum(static_cast<size_t>(41 * width));
  for (int k = 0; k < 4; ++k) {
    const int64_t first = borders[k], count = borders[k + 1] - first;
    const Tensor part = rig.exec.empty({41, width});
    kernels::embedding_forward(rig.exec, ids, table.row_range(first, count), part, {first, 17});
    const Numbers rows = numbers(part);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rows[i];
    kernels::embedding_backward(rig.exec, ids, dy, d_slices.row_range(first, count), {first, 17});
  }
  EXPECT_EQ(sum, numbers(y));
  EXPECT_TRUE(SameBits(d_slices.view(), d_table.view()));
  host<int32_t>(ids)[3] = 17;
  EXPECT_THROW(kernels::embedding_forward(rig.exec, ids, table.row_range(0, 8), y, {0, 17}),
               ConfigError);
}

TEST_P(Embedding, DoesNothingWithoutTokens) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0}, DType::kI32), table = rig.normal("t", {3, 4});
  const Numbers before = numbers(table);
  kernels::embedding_forward(rig.exec, none, table, rig.exec.empty({0, 4}));
  kernels::embedding_backward(rig.exec, none, rig.exec.empty({0, 4}), table);
  EXPECT_EQ(numbers(table), before);
}

INSTANTIATE_TEST_SUITE_P(Every, Embedding, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
