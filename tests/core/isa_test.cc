#include "core/base/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "core/base/error.h"

namespace weft::test {
namespace {

// Sets WEFT_ISA for the length of a test.
class Asked {
 public:
  explicit Asked(const char* value) {
    if (const char* old = std::getenv("WEFT_ISA")) old_ = old;
    if (value == nullptr)
      unsetenv("WEFT_ISA");
    else
      setenv("WEFT_ISA", value, 1);
  }
  ~Asked() {
    if (old_)
      setenv("WEFT_ISA", old_->c_str(), 1);
    else
      unsetenv("WEFT_ISA");
  }

 private:
  std::optional<std::string> old_;
};

TEST(Isa, NamesAndValuesAreInverse) {
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    EXPECT_EQ(isa_named(name_of(isa)), isa);
  }
  EXPECT_EQ(isa_named("sse9"), std::nullopt);
  EXPECT_EQ(isa_named(""), std::nullopt);
}

TEST(Isa, LevelsAreFoundFromTheLowestUpWithoutGaps) {
  const std::vector<Isa> found = available_isas();
  ASSERT_FALSE(found.empty());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], static_cast<Isa>(i));
}

TEST(Isa, TheHighestIsChosenUnlessALowerOneIsAskedFor) {
  {
    const Asked none(nullptr);
    EXPECT_EQ(chosen_isa(), available_isas().back());
  }
  {
    const Asked empty("");
    EXPECT_EQ(chosen_isa(), available_isas().back());
  }
  for (const Isa isa : available_isas()) {
    const Asked asked(std::string(name_of(isa)).c_str());
    EXPECT_EQ(chosen_isa(), isa);
  }
}

TEST(Isa, AskingForWhatTheMachineLacksIsTheUsersMistake) {
  const Isa best = available_isas().back();
  if (best == Isa::kAmx) GTEST_SKIP() << "this machine has every level";
  const Asked asked(std::string(name_of(static_cast<Isa>(static_cast<int>(best) + 1))).c_str());
  EXPECT_THROW(chosen_isa(), ConfigError);
}

TEST(Isa, AskingForAnUnknownNameListsTheKnownOnes) {
  const Asked asked("sse9");
  try {
    chosen_isa();
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("plain, avx2, avx512, avx512_bf16, amx"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace weft::test
