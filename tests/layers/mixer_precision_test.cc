// Laws of mixer_laws_test.cc in bf16: a document in pieces, token by token and over ranks gives the
// result of one piece, within rounding to eight bits. The bound differs between mixers (norms and
// softmaxes can magnify a rounding a hundredfold), so it is measured: e is the distance of bf16
// from f32 in one piece, with equal weights and inputs. Other cuts round other numbers and are as
// far from f32, so they lie within 2 e of bf16 in one piece. That holds for errors of equal
// distribution, so it is tested for the median and the upper tenth of the tokens, not for the
// maximum.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/host_access.h"
#include "kernels/rows/l2_norm.h"
#include "layers/recurrence/delta.h"
#include "layers/recurrence/momentum.h"
#include "layers/recurrence/rank_one.h"
#include "parallel/parameter_values.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

constexpr int32_t kTokens = 331;  // several chunks, several blocks of queries
constexpr double kAllowed = 2;

// Numbers that bf16 holds.
Tensor rounded(Rig& rig, const char* name) {
  const Tensor x = rig.normal(name, {kTokens, kHidden});
  for (int64_t i = 0; i < x.elements(); ++i) {
    host<float>(x)[i] = to_float(to_bf16(host<float>(x)[i]));
  }
  return x;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= largest)) largest = d;  // NaN too
  }
  return largest;
}

// The largest difference of every token, in rising order.
std::vector<double> differences(const Tensor& a, const Tensor& b) {
  std::vector<double> all;
  for (int64_t t = 0; t < kTokens; ++t) {
    all.push_back(largest_difference(numbers(a.row_range(t, 1)), numbers(b.row_range(t, 1))));
  }
  std::sort(all.begin(), all.end());
  return all;
}

void expect_as_near(const Tensor& cut, const Tensor& whole, const Tensor& exact, const char* what) {
  const std::vector<double> d = differences(cut, whole), e = differences(whole, exact);
  for (const size_t place : {size_t{kTokens} / 2, size_t{kTokens} * 9 / 10}) {
    EXPECT_LE(d[place], kAllowed * e[place]) << what << ", place " << place;
  }
  EXPECT_TRUE(std::isfinite(d.back())) << what;
}

class MixerPrecision : public Gradients, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    x = rounded(rig, "x"), dy = rounded(rig, "dy");
    narrow_x = in_type(rig.exec, x, DType::kBF16);
    wide = std::make_unique<Made>(rig, rig.exec, GetParam());
    for (Parameter& p : wide->store.all()) {
      if (p.spec.f32) continue;  // f32 in every precision
      float* w = host<float>(p.master);
      for (int64_t i = 0; i < p.master.elements(); ++i) w[i] = to_float(to_bf16(w[i]));
    }
    publish(rig.exec, wide->store);
  }
  Tensor x, dy, narrow_x;
  std::unique_ptr<Made> wide;
};

TEST_P(MixerPrecision, SplitAndDecode) {
  const Made narrow(rig, rig.exec, GetParam(), 4, {}, nullptr, DType::kBF16);
  const InPieces exact(rig, *wide->mixer, x, dy, {kTokens});
  const InPieces whole(rig, *narrow.mixer, narrow_x, dy, {kTokens}),
      parts(rig, *narrow.mixer, narrow_x, dy, {2, 5, 70, kTokens}),
      tokens(rig, *narrow.mixer, narrow_x, {}, single_tokens(kTokens));
  expect_as_near(parts.y, whole.y, exact.y, "y in pieces");
  expect_as_near(parts.dx, whole.dx, exact.dx, "dx in pieces");
  expect_as_near(tokens.y, whole.y, exact.y, "y token by token");
}

TEST_P(MixerPrecision, Parallel) {
  const std::vector<int32_t> documents = {0, 9, kTokens};
  const auto over = [&](int ranks) {
    return OverRanks(rig, GetParam(), x, dy, documents, 1,
                     {.sequence = ranks, .type = DType::kBF16});
  };
  const OverRanks one = over(1), two = over(2);
  SavedStack saved;
  StepContext step;
  const Sequence sequence = make_sequence(documents);
  const Tensor y = wide->mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved);
  const Tensor dx = wide->mixer->backward(rig.exec, dy, {sequence, nullptr, &step}, saved);
  expect_as_near(two.y, one.y, y, "y");
  expect_as_near(two.dx, one.dx, dx, "dx");
  // Gradients of weights are sums over all tokens, including outliers: the median over weights is
  // tested.
  std::vector<double> shares;
  for (const Parameter& p : wide->store.all()) {
    if (p.spec.buffer) continue;
    const std::vector<double>&a = one.weights.at(p.spec.name), &b = two.weights.at(p.spec.name);
    shares.push_back(largest_difference(b, a) / largest_difference(a, numbers(p.grad)));
  }
  std::sort(shares.begin(), shares.end());
  EXPECT_LE(shares[shares.size() / 2], kAllowed);
}

// Every line of mixers.def, and options with a recurrence that no line has by default.
std::vector<std::string> precision_cases() {
  std::vector<std::string> names = {"fox,pro = true",
                                    "softmax,window = 9",
                                    "liger,form = 'gsa'",
                                    "ttt,mini_batch = 16",
                                    "ttt,inner_norm = true\neta_base = 0.2",
                                    "titans,mini_batch = 7"};
  for (const MixerInfo& mixer : mixer_list()) names.push_back(mixer.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, MixerPrecision, testing::ValuesIn(precision_cases()), name_of_case);

// The transition A of a span is carried from chunk to chunk in f32, even in bf16: A - I is a sum of
// products of three operands (keys, the chunk's transform of keys, the matrix so far), whose
// rounding is the only error. Erase strengths range from nearly 0 to nearly 1; 1024 tokens.
class Transitions : public testing::TestWithParam<Isa> {
 protected:
  static constexpr int64_t kRows = 1024, kWidth = 32;
  void SetUp() override {
    const Tensor keys = rig.normal("k", {kRows, kWidth});
    const Tensor inv_norm = rig.exec.empty({kRows, 1});
    kernels::l2_norm_forward(rig.exec, {.heads = 1}, keys, keys, inv_norm);
    narrow = in_type(rig.exec, keys, DType::kBF16);
    wide = in_type(rig.exec, narrow, DType::kF32);
  }
  void expect_near(const Summary& got, const Summary& want, const std::string& what) {
    const auto a = numbers(got.transition[0]), b = numbers(want.transition[0]);
    double changed = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      changed = std::max(changed, std::abs(b[i] - (i % (kWidth + 1) == 0 ? 1.0 : 0.0)));
    }
    EXPECT_LE(largest_difference(a, b), 3 * std::exp2(-9) * changed) << what;
  }
  Rig rig{2, GetParam()};
  Tensor narrow, wide;
};

TEST_P(Transitions, OfNarrowKeysAreCarriedInFullPrecision) {
  const Sequence sequence = make_sequence({0, kRows});
  const Tensor g = rig.exec.zeros({kRows, kWidth}), beta = rig.exec.empty({kRows, 1});
  const DeltaRecurrence delta({1, 1, kWidth, kWidth, 1.0f});
  const RankOneRecurrence rank_one({1, kWidth, kWidth, 1.0f});
  const MomentumRecurrence momentum({1, kWidth, kWidth, 1.0f, 1, false});
  for (const float strength : {0.003f, 0.03f, 0.3f, 0.9f}) {
    kernels::fill(rig.exec, beta, strength);
    const auto both = [&](const auto& rule, const auto& inputs, const char* name) {
      expect_near(rule.summarize(rig.exec, inputs(narrow), sequence),
                  rule.summarize(rig.exec, inputs(wide), sequence),
                  fmt::format("{}, strength {}", name, strength));
    };
    both(
        delta,
        [&](const Tensor& k) {
          return DeltaInputs{k, k, k, beta, {}};
        },
        "delta");
    both(
        rank_one, [&](const Tensor& k) { return RankOneInputs{k, k, k, g, {}, beta}; }, "rank one");
    both(
        momentum,
        [&](const Tensor& k) {
          return MomentumInputs{k, k, k, beta};
        },
        "descent");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Transitions, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
