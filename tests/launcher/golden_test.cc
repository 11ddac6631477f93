// Every golden case in tests/golden, through the same code as `weft verify`: outputs, states and
// gradients of an outside implementation in f64.
#include <gtest/gtest.h>

#include <filesystem>

#include "launcher/golden.h"
#include "layers/mixers/registry.h"
#include "tests/support/paths.h"

namespace weft::test {
namespace {

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(in_project("tests/golden"))) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  void expect_pass(DType precision) {
    const GoldenCase golden(in_project("tests/golden/") + GetParam() + ".safetensors", precision);
    for (const int threads : {1, 2}) {
      Runtime runtime(threads);
      const Comparison compare = run_golden(runtime, golden, default_tolerance(precision));
      EXPECT_TRUE(compare.passed()) << compare.worst_key() << ": " << compare.worst()
                                    << ", left out: " << compare.missing().size();
      // Output, at least one gradient: a case that compares nothing proves nothing.
      EXPECT_GE(compare.compared(), 2u);
    }
  }
};

TEST_P(Golden, AgreesInF32) { expect_pass(DType::kF32); }
TEST_P(Golden, AgreesInBf16) {
  if (GetParam() == "layer_mlstm_packed") {
    GTEST_SKIP() << "the gradient of mLSTM's input gate bias is a sum over all tokens in which "
                    "everything cancels "
                    "(adding a constant to every gate scales numerator and denominator alike): in "
                    "bf16 what is left "
                    "is rounding, 0.13 of the reference here";
  }
  expect_pass(DType::kBF16);
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param; });

TEST(Golden, ThereAreCasesOfEveryMixer) {
  const std::vector<std::string> files = golden_files();
  for (const MixerInfo& mixer : mixer_list()) {
    const std::string name =
        mixer.name == "softmax" ? "attention" : mixer.name;  // as the files say
    EXPECT_TRUE(std::any_of(files.begin(), files.end(), [&](const std::string& f) {
      return f.starts_with("layer_" + name);
    })) << mixer.name;
  }
}

}  // namespace
}  // namespace weft::test
