#include "kernels/model/cross_entropy.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

double naive_loss(const Numbers& logits, size_t begin, size_t width, int32_t target) {
  if (target < 0) return 0.0;
  double most = -1e300, total = 0;
  for (size_t i = 0; i < width; ++i) most = std::max(most, logits[begin + i]);
  for (size_t i = 0; i < width; ++i) total += std::exp(logits[begin + i] - most);
  return std::log(total) + most - logits[begin + static_cast<size_t>(target)];
}

Numbers naive_losses(const Numbers& logits, const std::vector<int32_t>& targets) {
  const size_t width = logits.size() / targets.size();
  Numbers out;
  for (size_t r = 0; r < targets.size(); ++r) {
    out.push_back(naive_loss(logits, r * width, width, targets[r]));
  }
  return out;
}

class CrossEntropy : public testing::TestWithParam<Isa> {
 protected:
  static Tensor tensor(Rig& rig, const std::vector<int32_t>& values) {
    const Tensor out = rig.exec.empty({static_cast<int64_t>(values.size())}, DType::kI32);
    std::copy(values.begin(), values.end(), host<int32_t>(out));
    return out;
  }
};

TEST_P(CrossEntropy, IsLogSumExpLessTheTargetsLogit) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 7, 65, 9001}) {  // 9001: three pieces of the sum
    const std::vector<int32_t> targets = {0, static_cast<int32_t>(width - 1), -1,
                                          static_cast<int32_t>(width / 2), -100};
    const Padded logits(rig, "l", 5, width, DType::kF32, 4.0);
    const Tensor losses = rig.exec.empty({5});
    kernels::cross_entropy(rig.exec, logits, tensor(rig, targets), 1.0f, losses, {});
    EXPECT_TRUE(Near(losses, naive_losses(logits.numbers(), targets), tolerance(DType::kF32, 64)));
  }
}

TEST_P(CrossEntropy, GradientIsTheSlopeOfTheLoss) {
  Rig rig(2, GetParam());
  const std::vector<int32_t> targets = {0, 30, -1, 15};
  for (const DType out : kReals) {
    const Padded logits(rig, "l", 4, 31, DType::kF32), d_logits(rig, "d", 4, 31, out);
    const Tensor losses = rig.exec.empty({4});
    kernels::cross_entropy(rig.exec, logits, tensor(rig, targets), -0.37f, losses, d_logits);
    const Numbers scale(4, -0.37);
    const Numbers want = slopes(
        [&](const Numbers& v) { return dot(naive_losses(v, targets), scale); }, logits.numbers());
    EXPECT_TRUE(Near(d_logits.view(), want, 1e-7 + tolerance(out, 31)));
    EXPECT_TRUE(d_logits.surroundings_kept());
  }
}

TEST_P(CrossEntropy, GradientMayOverwriteTheLogits) {
  Rig rig(2, GetParam());
  const Tensor logits = rig.normal("l", {3, 1009}), d_logits = rig.exec.empty({3, 1009});
  const Tensor targets = tensor(rig, {1008, -1, 5}), losses = rig.exec.empty({3});
  kernels::cross_entropy(rig.exec, logits, targets, 2.0f, losses, d_logits);
  const Numbers apart = numbers(losses);
  kernels::cross_entropy(rig.exec, logits, targets, 2.0f, losses, logits);
  EXPECT_TRUE(SameBits(logits.view(), d_logits.view()));
  EXPECT_EQ(numbers(losses), apart);
}

TEST_P(CrossEntropy, SurvivesLargeLogitsAndShowsNan) {
  Rig rig(1, GetParam());
  const Tensor logits = rig.exec.empty({2, 3}), losses = rig.exec.empty({2});
  const float values[] = {3e38f, -3e38f, 0.0f, 0.0f, std::nanf(""), 1.0f};
  std::copy(values, values + 6, host<float>(logits));
  kernels::cross_entropy(rig.exec, logits, tensor(rig, {0, 0}), 1.0f, losses, {});
  EXPECT_EQ(host<float>(losses)[0], 0.0f);
  EXPECT_TRUE(std::isnan(host<float>(losses)[1]));
}

// A short slice and an empty one too; rows whose largest logit is in each.
TEST_P(CrossEntropy, SlicesOfTheVocabularyGiveTheWhole) {
  Rig rig(2, GetParam());
  const int64_t rows = 37, width = 61, borders[] = {0, 31, 60, 61, 61};
  const Tensor logits = rig.normal("l", {rows, width}, 4.0);
  const Tensor targets = rig.exec.empty({rows}, DType::kI32);
  for (int64_t r = 0; r < rows; ++r) {
    host<int32_t>(targets)[r] = r % 5 == 4 ? -1 : static_cast<int32_t>(r * 13 % width);
  }
  for (const DType out : kReals) {
    const Tensor losses = rig.exec.empty({rows}), d = rig.exec.empty({rows, width}, out);
    kernels::cross_entropy(rig.exec, logits, targets, 0.3f, losses, d);
    const Tensor all = rig.exec.empty({4, rows, 3});
    const auto slice = [&](int k) { return kernels::VocabularySlice{borders[k], width}; };
    const auto part = [&](const Tensor& t, int k) {
      return t.view().columns(borders[k], borders[k + 1] - borders[k]);
    };
    for (int k = 0; k < 4; ++k) {
      kernels::cross_entropy_parts(rig.exec, part(logits, k), targets, slice(k), all.row(k));
    }
    const Tensor got = rig.exec.empty({rows}), d_got = rig.exec.empty({rows, width}, out);
    for (int k = 0; k < 4; ++k) {
      kernels::cross_entropy_slice(
          rig.exec, {part(logits, k), targets, all, 0.3f, got, part(d_got, k)}, slice(k));
      EXPECT_TRUE(Near(got, losses, 1e-6));
    }
    EXPECT_TRUE(Near(d_got, d, 1e-6 + tolerance(out, 1)));
  }
}

TEST_P(CrossEntropy, NamesATargetOutsideOfTheVocabulary) {
  Rig rig(1, GetParam());
  const Tensor logits = rig.normal("l", {2, 3});
  EXPECT_THROW(
      kernels::cross_entropy(rig.exec, logits, tensor(rig, {0, 3}), 1.0f, rig.exec.empty({2}), {}),
      ConfigError);
}

TEST_P(CrossEntropy, GivesTheSameBitsForAnyThreadsAndNothingForNoRows) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor logits = rig.normal("l", {301, 211}), losses = rig.exec.empty({301});
    kernels::cross_entropy(rig.exec, logits, tensor(rig, std::vector<int32_t>(301, 7)), 1.0f,
                           losses, logits);
    kernels::cross_entropy(rig.exec, rig.exec.empty({0, 9}), tensor(rig, {}), 1.0f,
                           rig.exec.empty({0}), {});
    return std::pair(numbers(losses), numbers(logits));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

INSTANTIATE_TEST_SUITE_P(Every, CrossEntropy, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
